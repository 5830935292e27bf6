"""What placements must come to, counted the plain way: every publication on its own, on every link of the tree."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import networkx as nx
import pyarrow as pa

from catchment import Overlay, Subscription
from catchment.model.results import key_text
from catchment.model.schema import Schema
from catchment.model.subscription import Query
from catchment.overlay import topic_tree

Link = tuple[str, str]


class Walk:
    """Who wants which event, beyond which link; and from that what a placement sends."""

    def __init__(
        self, overlay: Overlay, events: pa.Table, subscriptions: Sequence[Subscription], topic: str, schema: Schema
    ) -> None:
        self._schema = schema.with_implicit()
        self._rows = [row for row in _rows(events) if row["topic"] == topic]
        queries = [(one, one.within({topic: schema})) for one in subscriptions if one.query.topic == topic]
        self._regular = [(one.at, query) for one, query in queries if query.aggregate is None]
        self._asked = [(one, query) for one, query in queries if query.aggregate is not None]
        graph = nx.Graph(topic_tree(overlay).link_names)
        self.links: list[Link] = list(topic_tree(overlay).link_names)
        self._beyond: dict[Link, set[str]] = {}
        for source, target in self.links:
            cut = graph.copy()
            cut.remove_edge(source, target)
            self._beyond[source, target] = set(nx.node_connected_component(cut, target))

    def late(self) -> dict[Link, int]:
        return {link: len(self._crossing(link)) for link in self.links}

    def early(self) -> dict[Link, int]:
        return {
            link: len(self._forced(link)) + len({item for one in wanted.values() for item in one})
            for link, wanted in ((link, self._crossing(link, by_window=True)) for link in self.links)
        }

    def bound(self, *, by_window: bool) -> dict[Link, int]:
        """The forced ones, and a minimum vertex cover of the others: as large as a maximum matching."""
        found = {}
        for link in self.links:
            forced = self._forced(link)
            edges = [
                (("event", event), item)
                for event, items in self._crossing(link, by_window=by_window).items()
                for item in items
                if event not in forced
            ]
            graph = nx.Graph(edges)
            left = {event for event, _ in edges}
            found[link] = len(forced) + len(nx.bipartite.maximum_matching(graph, left)) // 2
        return found

    def _forced(self, link: Link) -> set[int]:
        return {
            number
            for number, row in enumerate(self._rows)
            if row["broker"] not in self._beyond[link]
            and any(at in self._beyond[link] and _matches(query, row) for at, query in self._regular)
        }

    def _crossing(self, link: Link, *, by_window: bool = True) -> dict[int, set[Any]]:
        """The events that somebody beyond the link wants, and the partials that each would be in."""
        found: dict[int, set[Any]] = defaultdict(set)
        for number in self._forced(link):
            found[number] |= set()
        for number, row in enumerate(self._rows):
            if row["broker"] in self._beyond[link]:
                continue
            for one, query in self._asked:
                if one.at in self._beyond[link] and _matches(query, row):
                    items = set(self._items(one, query, row, number, by_window=by_window))
                    if items:
                        found[number] |= items
        return found

    def _items(self, one: Subscription, query: Query, row: dict[str, Any], number: int, *, by_window: bool) -> Any:
        asked = query.aggregate
        assert asked is not None
        group = tuple(key_text(row.get(key), self._schema[key]) for key in asked.group_keys)
        window = asked.window
        numbers = window.windows_of(row["ts"])
        if not len(numbers):
            return
        # The stride that ends with the first window to end.
        times = list(numbers) if by_window else [numbers[0]]
        who: Any = one.name if by_window else (str(query.where), window, asked.group_keys)
        values = []
        for measure in dict.fromkeys([*(output.measure for output in asked.outputs), *asked.having_measures]):
            kind = self._schema[measure.attribute] if measure.attribute is not None else None
            state = measure.state(kind).name if kind is not None else ""
            if state == "values":
                values.append((state, measure.attribute, number))
            elif state == "distinct values":
                values.append((state, measure.attribute, row.get(measure.attribute)))
        for at in times:
            for value in values or [None]:
                yield who, group, at, value


def _rows(events: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = events.to_pylist()
    micros = events.column("ts").cast(pa.int64()).to_pylist()
    stamps = [field.name for field in events.schema if pa.types.is_timestamp(field.type)]
    plain = {name: events.column(name).cast(pa.int64()).to_pylist() for name in stamps}
    for at, row in enumerate(rows):
        row.update({name: column[at] for name, column in plain.items()})
        row["ts"] = micros[at]
    return rows


def _matches(query: Query, row: dict[str, Any]) -> bool:
    return query.where.matches({name: value for name, value in row.items() if value is not None})
