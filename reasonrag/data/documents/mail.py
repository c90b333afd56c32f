"""E-mails as documents: the subject is the title, and the text says first who wrote to whom and when.

Decides which part of a message is its text: the plain one, else the one in HTML. Attachments are not read. Knows no
passage.
"""

from __future__ import annotations

from email import message_from_bytes, policy

from reasonrag.data.documents.document import Document, Section, UnreadableError, on_one_line
from reasonrag.data.documents.html import page_document

_SHOWN = ("From", "To", "Date")


def mail_document(content: bytes, name: str) -> Document:
    """A message (eml). Its title is its subject, else `name`. Raises UnreadableError."""
    message = message_from_bytes(content, policy=policy.default)
    title = on_one_line(str(message["Subject"] or "")) or name
    heads = [f"{each}: {on_one_line(str(message[each]))}" for each in _SHOWN if message[each]]
    part = message.get_body(("html", "plain"))
    if part is None or not (text := str(part.get_content()).strip()):
        raise UnreadableError("a message without text; attachments are not read: save them as files")
    sections = page_document(text, title).sections if part.get_content_subtype() == "html" else [Section((), text)]
    return Document(title, [Section((), ", ".join(heads)), *sections])
