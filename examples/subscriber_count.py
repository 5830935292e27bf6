"""How many subscriptions of a topic there are, known to every broker that has a publisher of it: ASIA's example."""

from catchment.broker.advice import Advice


class SubscriberCount(Advice):
    name = "subscriber count"

    def _topic(self, at, topic):
        # Counts by the peer they come from, what each neighbour was last told, and which neighbours advertise.
        return at.state.setdefault(topic, {"from": {}, "told": {}, "advertising": []})

    def _towards(self, at, topic, neighbour):
        return sum(count for peer, count in self._topic(at, topic)["from"].items() if peer != neighbour)

    def ad_add(self, at, proceed, topic, peer):
        proceed()
        if peer in at.neighbours:
            self._topic(at, topic)["told"].pop(peer, None)
            self._topic(at, topic)["advertising"] = sorted({peer, *self._topic(at, topic)["advertising"]})
            at.settle()

    def ad_del(self, at, proceed, topic, peer):
        proceed()
        if peer in at.neighbours:
            self._topic(at, topic)["advertising"].remove(peer)
            self._topic(at, topic)["told"].pop(peer, None)

    def sub_add(self, at, proceed, topic, condition, peer, change=1):
        known = self._topic(at, topic)["from"]
        if peer not in at.neighbours:
            known[peer] = known.get(peer, 0) + change
        elif at.attached is not None:
            known[peer] = at.attached
        at.settle()
        return proceed()

    def sub_del(self, at, proceed, topic, condition, peer):
        return self.sub_add(at, proceed, topic, condition, peer, change=-1)

    def sub_send(self, at, proceed, topic, filters, neighbour):
        self._topic(at, topic)["told"][neighbour] = self._towards(at, topic, neighbour)
        at.attach(self._topic(at, topic)["told"][neighbour])
        proceed()

    unsub_send = sub_send

    def unad_send(self, at, proceed, topic, neighbour):
        self._topic(at, topic)["from"].pop(neighbour, None)
        at.settle()
        proceed()

    def on_message(self, at, sender, value):
        topic, count = value
        self._topic(at, topic)["from"][sender] = count
        at.settle()

    def on_settled(self, at):
        # What no subscription carried along goes by itself.
        for topic, known in at.state.items():
            for neighbour in known["advertising"]:
                count = self._towards(at, topic, neighbour)
                if known["told"].get(neighbour) != count:
                    known["told"][neighbour] = count
                    at.tell(neighbour, [topic, count])
