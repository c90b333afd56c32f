"""E-mails as documents: the subject is the title, and the text says first who wrote to whom and when.

Decides which part of a message is its text: the one in HTML if it has any, else the plain one. Attachments are not
read. Knows no passage.
"""

from __future__ import annotations

from email import message_from_bytes, policy
from email.message import MIMEPart

from reasonrag.data.documents.document import Document, Section, UnreadableError, decoded, on_one_line
from reasonrag.data.documents.html import page_document

_SHOWN = ("From", "To", "Date")


def mail_document(content: bytes, name: str) -> Document:
    """A message (eml). Its title is its subject, else `name`. Raises UnreadableError."""
    message = message_from_bytes(content, policy=policy.default)
    title = on_one_line(str(message["Subject"] or "")) or name
    heads = ", ".join(f"{each}: {on_one_line(str(message[each]))}" for each in _SHOWN if message[each])
    rich, plain = (_text(message.get_body((kind,))) for kind in ("html", "plain"))
    sections = page_document(rich, title).sections if rich else []
    if not sections and plain:
        sections = [Section((), plain)]
    if not sections:
        raise UnreadableError("a message without text; attachments are not read: save them as files")
    first = Section(sections[0].headings, f"{heads}\n\n{sections[0].text}".strip())
    return Document(title, [first, *sections[1:]])


def _text(part: MIMEPart | None) -> str:
    if part is None:
        return ""
    content = part.get_payload(decode=True)
    return decoded(content, declared=part.get_content_charset()).strip() if isinstance(content, bytes) else ""
