"""An insurer's files as an office keeps them, made up: 60 in three languages, each with what of it must be kept.

Web pages of four designs (divisions with names, without names, tables for layout, and elements that say what they are),
PDF with running heads and two columns, Word, Excel, CSV, e-mail, Markdown and text. The same seed gives the same words.
Needs reportlab, python-docx and openpyxl.
"""

# ruff: noqa: E501, RUF001 - text as people write it

from __future__ import annotations

import csv
import html
import io
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import docx
import openpyxl
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.platypus import BaseDocTemplate, Frame, PageBreak, PageTemplate, Paragraph, Spacer, Table


@dataclass(frozen=True)
class Made:
    """path: below the folder. content: sentences, headings and cells. boilerplate: lines that no passage may have."""

    path: str
    language: str
    title: str
    content: tuple[str, ...]
    boilerplate: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return self.path.rpartition(".")[2]


@dataclass(frozen=True)
class Page:
    language: str
    title: str
    sections: tuple[tuple[str, tuple[str, ...]], ...]
    table: tuple[tuple[str, ...], ...]

    @property
    def content(self) -> tuple[str, ...]:
        texts = [text for heading, sentences in self.sections for text in (heading, *sentences)]
        return (*texts, *(cell for row in self.table for cell in row))


PRODUCTS = {
    "en": "Home Contents|Travel Abroad|Private Liability|Bicycle Theft|Legal Expenses|Dental Care|Pet Health|Term Life|"
    "Building Damage|Student Health|Boat Hull|Musical Instruments|Wedding Cancellation|Drone Operator|Income Protection|"
    "Motor Comprehensive|Landlord Rent|Garden Machinery|Event Organiser|Art Collection|Solar Panels|Farm Animals|"
    "Cyber Incident|Glass Breakage|Flood and Storm|Volunteer Work|Ski Equipment|Funeral Costs".split("|"),
    "de": "Hausrat|Auslandsreise|Privathaftpflicht|Fahrraddiebstahl|Rechtsschutz|Zahnersatz|Tiergesundheit|Risikoleben|"
    "Wohngebäude|Studentenkranken|Bootskasko|Musikinstrumente|Hochzeitsrücktritt|Drohnenhalter|Berufsunfähigkeit|"
    "Kraftfahrtvollkasko|Mietausfall|Gartengeräte|Veranstalter|Kunstsammlung".split("|"),
    "zh": "家庭财产|境外旅行|个人责任|自行车盗抢|法律费用|牙科治疗|宠物健康|定期寿险|房屋损坏|学生医疗|船舶机身|乐器".split(
        "|"
    ),
}
NAMES = {
    "en": "Mira Sandoval|Owen Tarrant|Priya Nandakumar|Luis Fontaine|Greta Halvorsen|Samuel Okoro".split("|"),
    "de": "Jutta Brandl|Henrik Möllers|Ayşe Yıldırım|Karl-Heinz Obermair|Sabine Försterling|Tomasz Wölk".split("|"),
    "zh": "李文涛|王雪梅|陈国强|赵丽娜|孙浩然|周晓燕".split("|"),
}
SECTIONS = {
    "en": {
        "What is covered": "{p} insurance pays for damage of up to {a} euros in each case.|Cover begins {d} days after "
        "the contract was signed.|Objects that are older than {y} years are paid at their present value.",
        "Your own share": "In each case of {p} you pay the first {b} euros yourself.|After {y} years without a claim "
        "this share falls to {c} euros.",
        "Notice period": "The {p} contract can be ended with notice of {w} weeks to the end of a year.|After a claim "
        "either side may end it within {d} days.",
        "How to report damage": "Report damage under {p} within {d} days by telephone at extension {e}.|Theft must be "
        "reported to the police first, who give a number of the case.|Photographs are kept for {y} years.",
        "Who decides": "{n} heads the team of {p}.|Payments above {a} euros are signed by two people.|An objection is "
        "answered within {w} weeks.",
    },
    "de": {
        "Was versichert ist": "Die Versicherung {p} zahlt je Schadenfall bis zu {a} Euro.|Der Schutz beginnt {d} Tage "
        "nach der Unterschrift.|Gegenstände, die älter als {y} Jahre sind, werden zum Zeitwert ersetzt.",
        "Selbstbeteiligung": "Bei {p} tragen Sie je Fall die ersten {b} Euro selbst.|Nach {y} Jahren ohne Schaden sinkt "
        "dieser Anteil auf {c} Euro.",
        "Kündigungsfrist": "Der Vertrag {p} ist mit einer Frist von {w} Wochen zum Jahresende kündbar.|Nach einem "
        "Schaden können beide Seiten binnen {d} Tagen kündigen.",
        "Schaden melden": "Melden Sie Schäden zu {p} binnen {d} Tagen unter der Durchwahl {e}.|Ein Diebstahl wird zuerst "
        "der Polizei gemeldet, die ein Aktenzeichen vergibt.|Fotos werden {y} Jahre aufbewahrt.",
        "Wer entscheidet": "{n} leitet das Team {p}.|Zahlungen über {a} Euro unterschreiben zwei Personen.|Ein "
        "Widerspruch wird binnen {w} Wochen beantwortet.",
    },
    "zh": {
        "保障范围": "{p}保险每次事故最多赔付{a}欧元。|合同签署{d}天后保障开始生效。|使用超过{y}年的物品按现值赔付。",
        "自付额": "{p}保险每次事故由您自行承担前{b}欧元。|连续{y}年无理赔后,自付额降至{c}欧元。",
        "解约期限": "{p}合同可提前{w}周通知,于年底终止。|理赔之后,双方均可在{d}天内解约。",
        "如何报案": "{p}的损失须在{d}天内拨打分机{e}报案。|盗窃须先向警方报案,并取得案件编号。|照片保存{y}年。",
        "负责人": "{n}负责{p}团队。|超过{a}欧元的赔款须由两人签字。|异议将在{w}周内得到答复。",
    },
}
TABLE = {
    "en": ("Tariff", "Premium a month", "Limit"),
    "de": ("Tarif", "Monatsbeitrag", "Höchstsumme"),
    "zh": ("档次", "每月保费", "最高赔付"),
}
TARIFFS = {
    "en": ("Basic", "Comfort", "Premium"),
    "de": ("Basis", "Komfort", "Exklusiv"),
    "zh": ("基础版", "舒适版", "尊享版"),
}
SITE = {
    "en": (
        "We use cookies to improve your visit and to measure how our pages are read.",
        ("Start page", "Products", "Claims centre", "Phone of help desk", "Careers", "Log in"),
        "Northfield Mutual, 12 Harbour Road, registered under number 4471. Imprint and privacy.",
        ("You may also like", "Order our brochure"),
    ),
    "de": (
        "Wir verwenden Cookies, um unsere Seiten zu verbessern und Zugriffe zu messen.",
        ("Startseite", "Produkte", "Schadenservice", "Telefon der Hotline", "Karriere", "Anmelden"),
        "Nordfeld Versicherung a. G., Hafenstraße 12, Handelsregister 4471. Impressum und Datenschutz.",
        ("Das könnte Sie auch interessieren", "Prospekt bestellen"),
    ),
    "zh": (
        "我们使用Cookie来改进网站并统计访问量。",
        ("首页", "产品中心", "理赔服务", "客服电话", "招聘信息", "登录"),
        "北田互助保险,港口路12号,注册号4471。版权与隐私声明。",
        ("您可能还喜欢", "索取宣传册"),
    ),
}


def page(language: str, number: int, chance: random.Random) -> Page:
    product = PRODUCTS[language][number]
    pick = {
        "p": product,
        "a": f"{chance.randrange(11, 99) * 500}",
        "b": f"{chance.randrange(11, 60) * 10}",
        "c": f"{chance.randrange(2, 10) * 10}",
        "d": f"{chance.randrange(3, 30)}",
        "e": f"{chance.randrange(2000, 9999)}",
        "w": f"{chance.randrange(2, 14)}",
        "y": f"{chance.randrange(2, 12)}",
        "n": chance.choice(NAMES[language]),
    }
    made = [(heading, tuple(text.format(**pick).split("|"))) for heading, text in SECTIONS[language].items()]
    chance.shuffle(made)
    rows = [
        (f"{product} {tariff}", f"{chance.randrange(400, 4000) / 100:.2f}", f"{chance.randrange(10, 99)}000")
        for tariff in TARIFFS[language]
    ]
    return Page(language, product, tuple(made[:4]), (TABLE[language], *rows))


# -- web pages ----------------------------------------------------------------------------------------------------


def _inner(one: Page, heading: Callable[[str], str], paragraph: Callable[[str], str]) -> str:
    parts = []
    for title, sentences in one.sections:
        parts.append(heading(html.escape(title)))
        parts += [paragraph(html.escape(" ".join(sentences[:2])))]
        parts += [f"<ul>{''.join(f'<li>{html.escape(each)}</li>' for each in sentences[2:])}</ul>"] * bool(
            sentences[2:]
        )
    rows = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in one.table]
    return "".join([*parts, f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"])


def _links(names: Sequence[str], wrap: str) -> str:
    return "".join(f'<{wrap}><a href="/{number}.html">{name}</a></{wrap}>' for number, name in enumerate(names))


def _web(one: Page, design: str) -> tuple[str, tuple[str, ...]]:
    cookies, menu, footer, also = SITE[one.language]
    crumbs = f"<a href='/0.html'>{menu[0]}</a> › <a href='/1.html'>{menu[1]}</a> › {one.title}"
    site = f"{one.title} | {footer.split(',')[0]}"
    unnamed = '<div class="p4">{}</div>'
    if design == "elements":
        body = (
            f"<header><p>{cookies}</p></header><nav><ul>{_links(menu, 'li')}</ul></nav><main><h1>{one.title}</h1>"
            f"{_inner(one, '<h2>{}</h2>'.format, '<p>{}</p>'.format)}</main><aside>{_links(also, 'p')}</aside><footer>{footer}</footer>"
        )
        crumbs = ""
    elif design == "names":
        body = (
            f'<div class="cookie-banner"><div class="text">{cookies}</div></div><div id="top-menu">{_links(menu, "div")}</div>'
            f'<div class="breadcrumb">{crumbs}</div><div class="content"><h1>{one.title}</h1>'
            f"{_inner(one, '<h2>{}</h2>'.format, '<p>{}</p>'.format)}</div>"
            f'<div class="related">{_links(also, "div")}</div><div class="footer"><div>{footer}</div></div>'
        )
    elif design == "no names":
        body = (
            f'<div class="c1x"><div class="k9">{cookies}</div><div class="k2">{_links(menu, "span")}</div></div>'
            f'<div class="q7"><div class="u3">{crumbs}</div><div class="t1">{one.title}</div>'
            f"{_inner(one, '<h3>{}</h3>'.format, unnamed.format)}</div>"
            f'<div class="z5">{_links(also, "div")}<div>{footer}</div></div>'
        )
    else:
        body = (
            f"<table><tr><td colspan=2>{cookies}</td></tr><tr><td>{_links(menu, 'div')}</td><td><font size=5>{one.title}</font>"
            f"{_inner(one, '<h3>{}</h3>'.format, '<p>{}</p>'.format)}</td></tr><tr><td colspan=2>{footer}</td></tr></table>"
        )
        also, crumbs = (), ""
    text = (
        f'<!doctype html><html lang="{one.language}"><head><meta charset="utf-8"><title>{site}</title>'
        f"<script>var page = 1;</script></head><body>{body}</body></html>"
    )
    return text, (cookies, *menu, *also, footer, *([f"{menu[0]} › {menu[1]} › {one.title}"] if crumbs else []))


# -- office files -------------------------------------------------------------------------------------------------


def _pdf(one: Page, *, columns: int, running: tuple[str, str]) -> bytes:

    pdfmetrics.registerFont(UnicodeCIDFont("STSong-Light"))
    font = "STSong-Light" if one.language == "zh" else "Helvetica"
    bold = font if one.language == "zh" else "Helvetica-Bold"
    wrap = "CJK" if one.language == "zh" else None
    text = ParagraphStyle("text", fontName=font, fontSize=10, leading=13, spaceAfter=6, wordWrap=wrap)
    heading = ParagraphStyle("h", fontName=bold, fontSize=13, leading=17, spaceBefore=8, spaceAfter=4, wordWrap=wrap)
    top = ParagraphStyle("t", fontName=bold, fontSize=20, leading=26, spaceAfter=10, wordWrap=wrap)

    def decorated(canvas: Any, document: Any) -> None:
        canvas.setFont(font, 8)
        canvas.drawString(60, 810, running[0])
        canvas.drawString(280, 25, running[1].format(document.page))

    out = io.BytesIO()
    width = (A4[0] - 120 - 20 * (columns - 1)) / columns
    frames = [Frame(60 + (width + 20) * each, 50, width, 740, id=str(each)) for each in range(columns)]
    document = BaseDocTemplate(out, pagesize=A4, invariant=1)
    document.addPageTemplates([PageTemplate(frames=frames, onPage=decorated)])
    flow: list[object] = [Paragraph(one.title, top)]
    for number, (title, sentences) in enumerate(one.sections):
        flow += [Paragraph(title, heading), *(Paragraph(each, text) for each in sentences)]
        if columns == 1 and number < len(one.sections) - 1:
            flow.append(PageBreak())
        elif number == 1:
            flow.append(Spacer(1, 420))
    flow.append(Table([[Paragraph(cell, text) for cell in row] for row in one.table]))
    document.build(flow)
    return out.getvalue()


def _docx(one: Page, running: tuple[str, str]) -> bytes:
    document = docx.Document()
    document.core_properties.title = "Word Document"
    document.sections[0].header.paragraphs[0].text = running[0]
    document.sections[0].footer.paragraphs[0].text = running[1].format(1)
    document.add_heading(one.title, level=1)
    for title, sentences in one.sections:
        document.add_heading(title, level=2)
        document.add_paragraph(" ".join(sentences[:2]))
        for each in sentences[2:]:
            document.add_paragraph(each, style="List Bullet")
    table = document.add_table(rows=0, cols=len(one.table[0]))
    for row in one.table:
        for cell, value in zip(table.add_row().cells, row, strict=True):
            cell.text = value
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def _xlsx(pages: Sequence[Page]) -> bytes:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for one in pages:
        sheet = book.create_sheet(one.title)
        for row in one.table:
            sheet.append(row)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def _csv(one: Page, delimiter: str) -> bytes:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows(one.table)
    return out.getvalue().encode("utf-8-sig" if delimiter == ";" else "utf-8")


def _mail(one: Page, *, as_html: bool) -> tuple[bytes, tuple[str, ...]]:
    message = EmailMessage()
    message["From"], message["To"] = "office@northfield.example", "team@northfield.example"
    message["Subject"], message["Date"] = one.title, f"Mon, 02 Mar 2026 09:{len(one.title):02}:00 +0100"
    message["X-Mailer"] = "Northfield Mailer 7.1"
    lines = [text for title, sentences in one.sections for text in (title, " ".join(sentences), "")]
    message.set_content("\n".join(lines))
    if as_html:
        inner = _inner(one, "<h3>{}</h3>".format, "<p>{}</p>".format)
        message.add_alternative(f"<html><body>{inner}</body></html>", subtype="html")
        message.add_attachment(b"\x89PNG....", maintype="image", subtype="png", filename="logo.png")
    return bytes(message), ("Northfield Mailer 7.1", "logo.png")


def _markdown(one: Page) -> str:
    parts = [f"# {one.title}"]
    for title, sentences in one.sections:
        parts += [f"## {title}", " ".join(sentences)]
    rows = [f"| {' | '.join(row)} |" for row in one.table]
    return "\n\n".join([*parts, "\n".join([rows[0], "|---|---|---|", *rows[1:]])])


def _text(one: Page) -> str:
    parts = [one.title, *(f"{title}\n{' '.join(sentences)}" for title, sentences in one.sections)]
    return "\n\n".join([*parts, "\n".join("  ".join(row) for row in one.table)])


# -- the folder ---------------------------------------------------------------------------------------------------

PLAN: dict[str, tuple[tuple[str, int], ...]] = {
    "en": (("elements", 2), ("names", 4), ("no names", 3), ("tables", 1), ("pdf", 4), ("pdf2", 2), ("docx", 4), ("csv", 2), ("eml", 2), ("md", 2), ("txt", 2)),
    "de": (("elements", 2), ("names", 3), ("no names", 1), ("tables", 1), ("pdf", 2), ("pdf2", 2), ("docx", 3), ("csv", 1), ("eml", 1), ("md", 1), ("txt", 1)),
    "zh": (("names", 2), ("no names", 1), ("pdf", 2), ("docx", 2), ("csv", 1), ("md", 1), ("eml", 1)),
}  # fmt: skip
SHEETS = {"en": 2, "de": 1, "zh": 1}
RUNNING = {
    "en": ("Northfield Mutual, internal handbook", "page {}"),
    "de": ("Nordfeld Versicherung, internes Handbuch", "Seite {}"),
    "zh": ("北田互助保险内部手册", "第{}页"),
}


def make(folder: Path, *, seed: int = 0) -> list[Made]:
    """Writes the files, and says what of each is content."""
    chance, found = random.Random(seed), list[Made]()

    def put(
        path: str, content: bytes | str, one: Page, boilerplate: tuple[str, ...] = (), *, table: bool = True
    ) -> None:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content.encode() if isinstance(content, str) else content)
        cells = one.content if table else tuple(t for h, s in one.sections for t in (h, *s))
        found.append(Made(path, one.language, one.title, cells, boilerplate))

    for language, kinds in PLAN.items():
        number = 0
        for kind, count in kinds:
            for each in range(count):
                one = page(language, number, chance)
                number += 1
                stem, running = f"{language}/{kind.replace(' ', '-')}-{each}", RUNNING[language]
                heads = (running[0], running[1].format(1))
                if kind in ("pdf", "pdf2"):
                    put(f"{stem}.pdf", _pdf(one, columns=1 + (kind == "pdf2"), running=running), one, heads)
                elif kind == "docx":
                    put(f"{stem}.docx", _docx(one, running), one, heads)
                elif kind == "csv":
                    made = Page(language, f"csv {each}", (), one.table)
                    put(f"{stem}.csv", _csv(one, ";" if language == "de" else ","), made)
                elif kind == "eml":
                    mail, marks = _mail(one, as_html=each % 2 == 0)
                    put(f"{stem}.eml", mail, one, marks, table=each % 2 == 0)
                elif kind in ("md", "txt"):
                    put(f"{stem}.{kind}", _markdown(one) if kind == "md" else _text(one), one)
                else:
                    text, boilerplate = _web(one, kind)
                    put(f"{stem}.html", text, one, boilerplate)
        for each in range(SHEETS[language]):
            pages = [page(language, chance.randrange(len(PRODUCTS[language])), chance) for _ in range(2)]
            pages = pages[:1] if pages[0].title == pages[1].title else pages
            rows = tuple(row for one in pages for row in one.table)
            put(f"{language}/sheets-{each}.xlsx", _xlsx(pages), Page(language, f"sheets {each}", (), rows))
    return found
