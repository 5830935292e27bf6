"""What clients ask of a broker's process, and what it answers: JSON on plain subjects.

    Describe   what is the overlay?                            ─► Described
    Come       I am here, in this life; have I been before?    ─► Came
    Deliver    push my frames from this position on            ─► Delivering
    Find       where in your history does a time begin?        ─► Found
    Read       what has your history of a topic from there?    ─► Page

Anything may be asked again: a request that has no answer may or may not have had its effect.
"""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

import msgspec

from catchment.model.errors import UNREADABLE, CatchmentError, TransportError
from catchment.transport.description import Description
from catchment.transport.names import ask_subject, describe_subject
from catchment.transport.wire import AccessError, Connection, Message, NoAnswerError, header_bytes

__all__ = [
    "HEARTBEAT_S",
    "Answer",
    "Came",
    "ClientDroppedError",
    "Come",
    "Deliver",
    "Delivering",
    "Describe",
    "Described",
    "Find",
    "Found",
    "Page",
    "Read",
    "Refusal",
    "Request",
    "RequestRefusedError",
    "answer_bytes",
    "ask",
    "described",
]

HEARTBEAT_S = 2.0
"""How often the server says that a client's outbox has nothing new."""
ANSWER_S = 30.0
ASK_AGAIN_S = 1.0
PAUSE_S = 0.05


class RequestRefusedError(CatchmentError):
    """The broker refuses a request, and says why; after `retry_s` it may accept the same one, unless that is None."""

    def __init__(self, reason: str, retry_s: float | None = None) -> None:
        super().__init__(reason)
        self.retry_s = retry_s


class ClientDroppedError(TransportError):
    """The broker knows the client no more: it has not read for too long, or another process has its name."""


class Describe(msgspec.Struct, frozen=True, tag=True):
    """What is the overlay?"""


class Come(msgspec.Struct, frozen=True, tag=True):
    """A client is here, in a life of its own."""

    client: str
    """Its name among those of its user."""
    incarnation: int
    durable: bool


class Deliver(msgspec.Struct, frozen=True, tag=True):
    """Push the frames of a client, from a position of its outbox on, to the subject with this nonce."""

    client: str
    attached: int
    """By which input the client came: nothing of another life is delivered."""
    begin: int
    nonce: str
    incarnation: int = 0
    """The life that asks: one that another has followed gets nothing. 0, of clients that do not say, is any."""


class Find(msgspec.Struct, frozen=True, tag=True):
    """Find where to begin to read the history of a broker, so that no event of a topic from a time on is missed."""

    topic: str
    since_us: Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]


class Read(msgspec.Struct, frozen=True, tag=True):
    """Read what a history has of a topic behind a position: a page, which ends with the step that has the mark."""

    topic: str
    after: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    mark: str


class Described(msgspec.Struct, frozen=True, tag=True):
    """The overlay."""

    overlay: Description


class Came(msgspec.Struct, frozen=True, tag=True):
    """The broker knows the client, or knows it again."""

    attached: int
    confirmed: int
    """The position in its outbox up to which an earlier life has confirmed."""
    bytes_max: int
    """How much may wait in its outbox."""


class Delivering(msgspec.Struct, frozen=True, tag=True):
    """Frames come."""


class Found(msgspec.Struct, frozen=True, tag=True):
    """Where to begin."""

    position: int


class Page(msgspec.Struct, frozen=True, tag=True):
    """Some of a history."""

    after: int
    """The position up to which it was read."""
    is_marked: bool
    """Whether the mark is there."""
    frame: bytes = b""
    """What was recorded; it travels beside the rest, as it is."""


class Refusal(msgspec.Struct, frozen=True, tag=True):
    """It is not to be, and why."""

    reason: str
    life: int = 0
    """The client's, if the one that was asked for is earlier."""
    is_dropped: bool = False
    """The client is known no more."""
    is_passing: bool = False
    """To be asked again."""
    is_gone: bool = False
    """What is asked for was dropped from the history."""


Request = Describe | Come | Deliver | Find | Read
Answer = Described | Came | Delivering | Found | Page | Refusal
_PAGE = "Catchment-Page"
"""The header with all of a page but its frame: in JSON, bytes would take a third more than a message may have."""
_answers: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)


def answer_bytes(answer: Answer) -> tuple[bytes, bytes]:
    """An answer as the data and the head of a message."""
    if isinstance(answer, Page):
        told = msgspec.json.encode(Page(answer.after, answer.is_marked)).decode()
        return answer.frame, header_bytes({_PAGE: told})
    return msgspec.json.encode(answer), b""


def _answer_from(message: Message) -> Answer:
    told = message.headers.get(_PAGE) if message.head else None
    if told is None:
        return _answers.decode(message.data)
    page = _answers.decode(told)
    return msgspec.structs.replace(page, frame=message.data) if isinstance(page, Page) else page


async def described(connection: Connection, user: str) -> Description:
    """What the overlay is, as any of its brokers says."""
    answer = await _asked(connection, describe_subject(user), Describe(), "an overlay")
    if not isinstance(answer, Described):
        raise TransportError(f"a broker answers {answer!r}; accepted is a description")
    return answer.overlay


async def ask(connection: Connection, broker: str, user: str, request: Come | Deliver | Find | Read) -> Answer:
    """Ask a broker's process until it answers."""
    answer = await _asked(connection, ask_subject(broker, user), request, f"broker {broker!r}")
    if isinstance(answer, Refusal) and answer.is_dropped:
        raise ClientDroppedError(answer.reason)
    return answer


async def _asked(connection: Connection, subject: str, request: Request, whom: str) -> Answer:
    data, until_s = msgspec.json.encode(request), time.monotonic() + ANSWER_S
    reason = ""
    while time.monotonic() < until_s:
        try:
            message = await connection.request(subject, data, within_s=ASK_AGAIN_S)
        except NoAnswerError:
            if connection.problem.startswith("Permissions Violation"):
                raise AccessError(
                    f"the server does not let {connection.user!r} ask {whom}: {connection.problem}; accepted is what "
                    "its roles allow"
                ) from None
            continue
        if message.status == 503:
            # It is about to start, or to start again.
            await asyncio.sleep(PAUSE_S)
            continue
        try:
            answer = _answer_from(message)
        except UNREADABLE as error:
            raise TransportError(f"what {whom} answers does not decode: {error}") from None
        if not (isinstance(answer, Refusal) and answer.is_passing):
            return answer
        reason = f": {answer.reason}"
        await asyncio.sleep(PAUSE_S)
    raise TransportError(
        f"{whom} has not answered within {ANSWER_S:g} seconds{reason}; start one with `catchment up` or "
        "`catchment broker`"
    )
