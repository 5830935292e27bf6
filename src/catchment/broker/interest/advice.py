"""The advice that works out interest, at one broker.

Rule 1: whatever changes a value (a subscription, an advertisement, a report) marks its questions; what is due is worked
        out once, when the broker has sent all that the input leads to (`on_settled`).
Rule 2: a value rides on an AD, UNAD, SUB or UNSUB that goes to the same neighbour anyway; what is left goes in one
        message per neighbour, for all topics and functions.
Rule 3: messages are confirmed. So a client that asks is answered once the whole tree has reported, and a subscription
        is acknowledged once everybody who counts it knows of it.
Rule 4: a tree that nobody asks for any more leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from catchment.broker.advice import ATTACHED_BYTES_MAX, VALUE_BYTES_MAX, Advice, At, Proceed
from catchment.broker.demands import Demand, where_of
from catchment.broker.interest.options import InterestOptions
from catchment.broker.interest.questions import InterestQuestion
from catchment.broker.interest.tree import InterestTree
from catchment.broker.routing import Before
from catchment.model.errors import CatchmentError, ConfigurationError
from catchment.model.filter import Filter
from catchment.model.subscription import Subscription

__all__ = ["ADVICE", "Interest"]

ADVICE = "interest"
GRANTS, VALUES = "grants", "values"
MESSAGE_BYTES = VALUE_BYTES_MAX - 1_000
"""Of one message about several questions."""
UNREADABLE_MESSAGES = "messages about interest that do not fit"


class Interest(Advice):
    """Tells clients about the subscribers and publishers of topics.

    A client asks by `AskAdvice("interest", {"ask": name, "function": …, "topic": …, "where": …, "tolerance": …})`, and
    is informed of `[name, value, slack]` whenever the value changes, until `{"end": name}`.
    """

    name = ADVICE

    def __init__(self, options: InterestOptions | None = None) -> None:
        self._options = options or InterestOptions()
        self._trees: dict[str, InterestTree] = {}
        self._asked: dict[str, dict[str, str]] = {}
        """By client and name, the key of the question that it asks."""
        self._informed: dict[tuple[str, str], list[Any]] = {}
        """By client and name, what it was last informed of."""
        self._subscribed: dict[str, dict[str, list[Filter]]] = {}
        """By topic and client, the filters of its subscriptions."""
        self._publishing: dict[str, list[str]] = {}
        """By topic, the clients that advertise it."""
        self._marked: set[str] = set()
        """Questions of which something may be due."""

    # -- what clients ask ---------------------------------------------------------------------------------------------

    def on_request(self, at: At, client: str, value: Any) -> None:
        if not isinstance(value, dict) or not ({"ask", "end"} & value.keys()):
            raise ConfigurationError(f"interest is asked {str(value)[:80]!r}; accepted are 'ask' and 'end' with a name")
        if "end" in value:
            self._end(at, client, value["end"])
            return
        name = value["ask"]
        if not isinstance(name, str) or name in self._asked.get(client, {}):
            raise ConfigurationError(f"interest is asked as {name!r}; accepted is a name that this client does not use")
        question = InterestQuestion.asked(value.get("function"), value.get("topic"), value.get("where"), at.schemas)
        _require_right(at, client, question)
        slack = question.slack(value.get("tolerance"))
        tree = self._tree(at, question)
        self._asked.setdefault(client, {})[name] = question.key
        tree.tolerances[f"{client} {name}"] = slack
        self._mark(at, question.key)

    def _end(self, at: At, client: str, name: Any) -> None:
        asked = self._asked.get(client, {})
        if not isinstance(name, str) or name not in asked:
            raise ConfigurationError(f"interest {name!r} is not asked; there are {', '.join(sorted(asked)) or 'none'}")
        key = asked.pop(name)
        if not asked:
            self._asked.pop(client)
        self._informed.pop((client, name), None)
        self._trees[key].tolerances.pop(f"{client} {name}")
        self._mark(at, key)

    def on_client_parked(self, at: At, client: str) -> None:
        """What is known now is of no use to who is away."""
        self.on_client_detached(at, client)

    def on_client_resumed(self, at: At, client: str) -> None:
        """Its life before may have ended without a word."""
        self.on_client_detached(at, client)

    def on_client_detached(self, at: At, client: str) -> None:
        for name in list(self._asked.get(client, ())):
            self._end(at, client, name)

    # -- what is counted ----------------------------------------------------------------------------------------------

    def sub_add(self, at: At, proceed: Proceed, topic: str, demand: Demand, peer: str) -> dict[str, Before]:
        if peer in at.neighbours:
            self._take_attached(at, peer)
        else:
            self._subscribed.setdefault(topic, {}).setdefault(peer, []).append(where_of(demand))
            self._count(at, topic, "subscriptions")
        found: dict[str, Before] = proceed()
        return found

    def sub_del(self, at: At, proceed: Proceed, topic: str, demand: Demand, peer: str) -> dict[str, Before]:
        if peer in at.neighbours:
            self._take_attached(at, peer)
        else:
            clients = self._subscribed[topic]
            clients[peer].remove(where_of(demand))
            if not clients[peer]:
                clients.pop(peer)
            self._count(at, topic, "subscriptions")
        found: dict[str, Before] = proceed()
        return found

    def ad_add(self, at: At, proceed: Proceed, topic: str, peer: str) -> None:
        if peer in at.neighbours:
            self._take_attached(at, peer)
        else:
            self._publishing[topic] = sorted({peer, *self._publishing.get(topic, ())})
            self._count(at, topic, "publishers")
        proceed()

    def ad_del(self, at: At, proceed: Proceed, topic: str, peer: str) -> None:
        if peer in at.neighbours:
            self._take_attached(at, peer)
        else:
            self._publishing[topic].remove(peer)
            self._count(at, topic, "publishers")
        proceed()

    def _count(self, at: At, topic: str, source: str) -> None:
        for key, tree in self._trees.items():
            if tree.question.topic == topic and tree.question.of.source == source:
                tree.contribute(self._contributions(at, tree.question))
                self._mark(at, key)

    def _contributions(self, at: At, question: InterestQuestion) -> Iterable[Any]:
        function = question.of
        if function.source == "publishers":
            return [function.contribution(f"{at.broker}/{one}") for one in self._publishing.get(question.topic, ())]
        return [
            function.contribution(f"{at.broker}/{client}")
            for client, filters in sorted(self._subscribed.get(question.topic, {}).items())
            for where in filters
            if question.concerns(where)
        ]

    # -- what neighbours say ------------------------------------------------------------------------------------------

    def on_message(self, at: At, sender: str, value: Any) -> None:
        try:
            for plain, slack in value.get(GRANTS, ()):
                tree = self._tree(at, InterestQuestion.from_plain(plain, at.schemas))
                tree.be_granted(sender, slack)
                self._mark(at, tree.question.key)
            self._take_values(at, sender, value.get(VALUES, ()))
        except (CatchmentError, AttributeError, TypeError, ValueError) as error:
            at.report(UNREADABLE_MESSAGES, str(error))

    def _take_attached(self, at: At, sender: str) -> None:
        if at.attached is not None:
            self._take_values(at, sender, at.attached)

    def _take_values(self, at: At, sender: str, values: Iterable[Any]) -> None:
        for key, value in values:
            if key in self._trees:
                self._trees[key].report(sender, value)
                self._mark(at, key)

    def on_neighbour_began(self, at: At, neighbour: str) -> None:
        for key, tree in self._trees.items():
            tree.begin_anew(neighbour)
            self._mark(at, key)

    # -- what goes out ------------------------------------------------------------------------------------------------

    def sub_send(self, at: At, proceed: Proceed, topic: str, added: tuple[Demand, ...], neighbour: str) -> None:
        self._ride_along(at, neighbour)
        proceed()

    def unsub_send(self, at: At, proceed: Proceed, topic: str, dropped: tuple[Demand, ...], neighbour: str) -> None:
        self._ride_along(at, neighbour)
        proceed()

    def ad_send(self, at: At, proceed: Proceed, topic: str, neighbour: str) -> None:
        self._ride_along(at, neighbour)
        proceed()

    def unad_send(self, at: At, proceed: Proceed, topic: str, neighbour: str) -> None:
        self._ride_along(at, neighbour)
        proceed()

    def _ride_along(self, at: At, neighbour: str) -> None:
        """Let a message that goes to a neighbour anyway carry what is due to it, if it is small."""
        values = self._due_values(neighbour)
        if values and len(msgspec.msgpack.encode(values)) <= ATTACHED_BYTES_MAX:
            at.attach(values)
            self._note_sent(neighbour, values)

    def _due_values(self, neighbour: str) -> list[list[Any]]:
        due = [(key, self._trees[key].due_value(neighbour)) for key in sorted(self._marked)]
        return [[key, value[0]] for key, value in due if value is not None]

    def _note_sent(self, neighbour: str, values: list[list[Any]]) -> None:
        for key, value in values:
            self._trees[key].note_sent(neighbour, value)

    def on_settled(self, at: At) -> None:
        grants: dict[str, list[list[Any]]] = {}
        for key in sorted(self._marked):
            tree = self._trees[key]
            for neighbour, slack in tree.due_grants().items():
                tree.note_granted(neighbour, slack)
                grants.setdefault(neighbour, []).append([tree.question.plain, slack])
        for neighbour in at.neighbours:
            values = self._due_values(neighbour)
            self._note_sent(neighbour, values)
            for said in _messages(grants.get(neighbour, []), values):
                at.tell(neighbour, said, confirmed=True)
        self._inform(at)
        for key in self._marked:
            if not self._trees[key].is_wanted:
                self._trees.pop(key)
        self._marked.clear()

    def _inform(self, at: At) -> None:
        known = {key: self._trees[key].known_here() for key in self._marked}
        for client, asked in self._asked.items():
            for name, key in asked.items():
                now = known.get(key)
                if now is not None and self._informed.get((client, name)) != [*now]:
                    self._informed[client, name] = [*now]
                    at.inform(client, [name, *now])

    def _tree(self, at: At, question: InterestQuestion) -> InterestTree:
        key = question.key
        if key not in self._trees:
            if len(self._trees) >= self._options.questions_max:
                raise ConfigurationError(
                    f"{len(self._trees)} questions about interest are asked; accepted are at most that many"
                )
            tree = self._trees[key] = InterestTree(question, at.neighbours, self._options.division)
            tree.contribute(self._contributions(at, question))
        return self._trees[key]

    def _mark(self, at: At, key: str) -> None:
        self._marked.add(key)
        at.settle()

    # -- memory -------------------------------------------------------------------------------------------------------

    def on_begin(self, at: At) -> None:
        """Count the clients that were there before."""
        for client in at.clients:
            for topic in at.topics(client):
                self._publishing[topic] = sorted({client, *self._publishing.get(topic, ())})
            for name, known in at.subscriptions(client).items():
                query = Subscription(name, at.broker, sql=known.sql).within(at.schemas)
                self._subscribed.setdefault(known.topic, {}).setdefault(client, []).append(query.where)

    def sizes(self) -> dict[str, int]:
        return {"questions about interest": len(self._trees)}

    def saved(self) -> Any:
        return {
            "trees": [tree.saved() for tree in self._trees.values()],
            "asked": {client: dict(asked) for client, asked in self._asked.items()},
            "informed": [[client, name, list(value)] for (client, name), value in self._informed.items()],
            "subscribed": {
                topic: {client: list(filters) for client, filters in clients.items()}
                for topic, clients in self._subscribed.items()
            },
            "publishing": {topic: list(clients) for topic, clients in self._publishing.items()},
        }

    def restore(self, at: At, saved: Any) -> None:
        for one in saved["trees"]:
            question = InterestQuestion.from_plain(one["question"], at.schemas)
            tree = self._trees[question.key] = InterestTree(question, at.neighbours, self._options.division)
            tree.restore(one)
        self._asked = {client: dict(asked) for client, asked in saved["asked"].items()}
        self._informed = {(client, name): value for client, name, value in saved["informed"]}
        self._subscribed, self._publishing = saved["subscribed"], saved["publishing"]


def _require_right(at: At, client: str, question: InterestQuestion) -> None:
    """Whoever may publish or subscribe to a topic may ask about it; who its clients are, only who may do everything."""
    if question.of.names_clients and not (at.may(client, "publish", None) and at.may(client, "subscribe", None)):
        raise ConfigurationError(f"{question.function} names clients; accepted is that of who may use every topic")
    if not (at.may(client, "publish", question.topic) or at.may(client, "subscribe", question.topic)):
        raise ConfigurationError(
            f"interest in {question.topic!r} is asked; accepted are topics that its user may publish or subscribe to"
        )


def _messages(grants: list[list[Any]], values: list[list[Any]]) -> Iterator[dict[str, list[list[Any]]]]:
    """What goes to one neighbour, in one message or as few as fit. Grants go first, for values answer them."""
    said: dict[str, list[list[Any]]] = {}
    size = 0
    for kind, one in [*((GRANTS, grant) for grant in grants), *((VALUES, value) for value in values)]:
        more = len(msgspec.msgpack.encode(one))
        if said and size + more > MESSAGE_BYTES:
            yield said
            said, size = {}, 0
        said.setdefault(kind, []).append(one)
        size += more
    if said:
        yield said
