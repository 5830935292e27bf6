"""Who may do what: each role tries everything that it may not do, with a raw connection and as a client."""

import asyncio
import itertools
import json
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import catchment
from catchment import CatchmentError
from catchment.app.main import app
from catchment.broker.frames import FrameReader
from catchment.broker.hosting import item_to_bytes
from catchment.broker.inputs import Detached
from catchment.model.errors import ConfigurationError
from catchment.transport.access import BUCKET, Access
from catchment.transport.asking import Find, Read
from catchment.transport.client import Client, ClientDroppedError, RequestRefusedError
from catchment.transport.credentials import OPEN, Credentials, new_seed, replace_key, write_key
from catchment.transport.history import Kept
from catchment.transport.jetstream import JetStream
from catchment.transport.names import client_subject, control_subject, input_stream, outbox_stream, steps_subject
from catchment.transport.server import Server
from catchment.transport.status import figures_of, subscriptions_of
from catchment.transport.wire import AccessError, Connection, Message, header_bytes, open_connection
from tests.transport.conftest import Live, eventually, run
from tests.transport.guarded import ALL, ROLES, TOPICS, Authority, Guarded
from tests.transport.test_commands import COMMAND, TOML, line_with, started


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    made = Guarded(tmp_path)
    with made.server:
        yield made
        if hasattr(made, "overlay"):
            made.overlay.stop()


async def refusal(connection: Connection, attempt: Callable[[], object]) -> str:
    """What the server says to something that is not allowed; nothing said is a failure."""
    connection.problem = ""
    attempt()

    async def is_said() -> bool:
        return bool(connection.problem)

    try:
        await eventually(is_said, within_s=10)
    except TimeoutError:
        return "it is allowed"
    return connection.problem


def of_others(user: str) -> list[str]:
    """Subjects on which no client of `user` may publish."""
    other = "bob" if user != "bob" else "ann"
    return [
        "catchment.link.b1.b2", "catchment.room.b1.b2", "catchment.control.b1", "catchment.steps.b1",
        f"catchment.outbox.b1.{user}.c.frame", f"catchment.outbox.b1.{other}.c.frame", "catchment.snapshot.b1.1",
        "catchment.status.b1.figures", "catchment.status.b1.subscriptions",
        f"catchment.client.b1.{other}.c", f"catchment.alive.b1.{other}.c",
        f"catchment.confirm.b1.{other}.c", f"catchment.ask.b1.{other}",
        f"catchment.describe.{other}", f"catchment.deliver.{other}.c.1", f"catchment.deliver.{user}.c.1",
        "catchment.pub.b1.stock", "$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.DELETE.catchment_input_b1",
        "$JS.API.STREAM.PURGE.catchment_input_b1", "$JS.API.CONSUMER.CREATE.catchment_input_b1",
        "$JS.API.STREAM.MSG.GET.catchment_input_b1", "$JS.API.DIRECT.GET.catchment_input_b1", "$JS.ACK.a.b.1.1.1.1.0",
        f"$JS.FC.catchment_outbox.{other}.1", "$KV.catchment_leases.b1", "$KV.catchment_overlay.description",
        "$KV.catchment_access.table", "$KV.catchment_store.x", f"_INBOX_{other}.1", "_INBOX.1", "$SYS.REQ.SERVER.PING",
        "anything",
    ]  # fmt: skip


def unheard(user: str) -> list[str]:
    """Subjects to which no client of `user` may subscribe."""
    other = "bob" if user != "bob" else "ann"
    return [
        ">", "*", "catchment.>", "catchment.*.>", f"catchment.deliver.{other}.>", "catchment.deliver.>",
        "catchment.deliver.*.c.1", "catchment.client.>", "catchment.alive.>",
        "catchment.link.>", "catchment.room.>", "catchment.control.>",
        "catchment.steps.>", "catchment.outbox.>", "catchment.snapshot.>", "catchment.ask.>", "catchment.confirm.>",
        "catchment.pub.>", "catchment.status.>", f"_INBOX_{other}.>", "_INBOX.>", "$KV.>", "$JS.>", "$SYS.>",
    ]  # fmt: skip


@pytest.mark.parametrize("user", ["ann", "bob"])
def test_a_client_may_use_no_subject_but_its_own(guarded: Guarded, user: str) -> None:
    async def test() -> None:
        connection = await guarded.opened(user)
        subjects = of_others(user) + (["catchment.pub.b1.traffic"] if user == "bob" else [])
        for subject in subjects:
            said = await refusal(connection, lambda subject=subject: connection.publish(subject, b"{}"))  # type: ignore[misc]
            assert said == f'Permissions Violation for Publish to "{subject}"'
        for subject in unheard(user):
            said = await refusal(connection, lambda subject=subject: connection.subscribe(subject, print))  # type: ignore[misc]
            assert said == f'Permissions Violation for Subscription to "{subject}"'
        await connection.close()

    run(test())


def test_a_publisher_may_post_on_the_plain_subjects_of_its_topics(guarded: Guarded) -> None:
    async def test() -> None:
        await guarded.started(("b1", "b2"))
        async with guarded.connect("bob", broker="b2") as subscriber:
            subscription = await subscriber.subscribe(ALL)
            connection = await guarded.opened("ann")
            stored = await connection.request("catchment.pub.b1.traffic", b'{"speed": 1.5}')
            assert b'"seq"' in stored.data
            assert (await anext(subscription))["speed"] == 1.5
            # A subject that would be somebody else's inbox is nothing that a broker publishes to for her.
            head = header_bytes({"Catchment-Reply": "$KV.catchment_leases.b1"})
            await connection.request("catchment.pub.b1.traffic", b'{"speed": 2.5}', head=head)
            assert (await anext(subscription))["speed"] == 2.5
            await connection.close()

    run(test())


def test_a_broker_may_not_change_who_may_do_what_nor_read_what_others_are_answered(guarded: Guarded) -> None:
    async def test() -> None:
        root = await guarded.opened("root")
        await guarded.access.store(JetStream(root))
        connection = await guarded.opened("brokers")
        for subject in (
            f"$KV.{BUCKET}.table",
            *(f"$JS.API.STREAM.{one}.KV_{BUCKET}" for one in ("UPDATE", "DELETE", "PURGE", "MSG.DELETE")),
        ):
            said = await refusal(connection, lambda subject=subject: connection.publish(subject, b"{}"))  # type: ignore[misc]
            assert said == f'Permissions Violation for Publish to "{subject}"'
        for subject in ("_INBOX_root.>", "_INBOX_ann.>", ">"):
            said = await refusal(connection, lambda subject=subject: connection.subscribe(subject, print))  # type: ignore[misc]
            assert said == f'Permissions Violation for Subscription to "{subject}"'
        await connection.close()
        # The operator may.
        guarded.access = guarded.access.without("eve")
        await guarded.access.store(JetStream(root))
        await root.close()

    run(test())


def test_no_answer_can_be_led_to_where_its_client_may_not_publish(guarded: Guarded) -> None:
    """The server does not check where a client wants its answer: it would store a broker's steps or lease there."""

    async def test() -> None:
        overlay = await guarded.started()
        async with guarded.connect("ann", name="c") as client:
            await client.publish("traffic", {"speed": 1.0})
            root, raw = await guarded.opened("root"), await guarded.opened("ann")
            streams, heard = JetStream(root), list[Message]()
            aims = [
                "catchment.steps.b1", "catchment.control.b1", "catchment.link.b1.b2", "catchment.client.b1.bob.c",
                "catchment.snapshot.b1.1", "catchment.ask.b1.bob", "catchment.confirm.b1.bob.c",
                "catchment.deliver.bob.c.1", "_INBOX_bob.1", "$KV.catchment_leases.b1",
                "$KV.catchment_overlay.description", "$KV.catchment_access.table",
                f"$JS.API.STREAM.PURGE.{input_stream('b1')}",
                f"$JS.API.STREAM.DELETE.{outbox_stream('b1', 'ann/c')}",
            ]  # fmt: skip
            for aim in aims:
                root.subscribe(aim, heard.append)
            await streams.state(input_stream("b1"))
            bob = await guarded.opened("bob")
            for aim in ("_INBOX_bob.1", "catchment.deliver.bob.c.1"):
                bob.subscribe(aim, heard.append)
            for aim in aims:
                raw.publish(client_subject("b1", "ann/stranger"), b"nonsense", reply=aim)
                raw.publish("catchment.ask.b1.ann", b"{}", reply=aim)
                raw.publish("catchment.describe.ann", b'{"type":"Describe"}', reply=aim)
            # Behind them, what is allowed is answered, and nothing has come where it does not belong.
            await client.publish("traffic", {"speed": 2.0})
            strangers = 0

            async def are_stored() -> bool:
                nonlocal strangers
                strangers = overlay.said.count("leaves out a message")
                return strangers >= len(aims)

            await eventually(are_stored, within_s=20)
            of_brokers = {"catchment.steps.b1", "catchment.control.b1", "catchment.snapshot.b1.1"}
            # What brokers ask the server themselves, as when a snapshot purges their inputs, names an inbox of theirs.
            by_others = [one for one in heard if not one.reply.startswith("_INBOX_brokers.")]
            assert [one for one in by_others if one.subject not in of_brokers] == []
            assert not [one for one in heard if b'"stream"' in one.data or b'"type"' in one.data]
            assert overlay.brokers["b1"].is_alive
            for connection in (root, raw, bob):
                await connection.close()

    run(test())


def test_an_open_server_too_answers_only_into_the_inbox_of_the_user(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live()
        await overlay.start()
        async with catchment.connect(overlay.url):
            connection = await open_connection(overlay.url, "test")
            heard: list[Message] = []
            for aim in (steps_subject("b1"), control_subject("b1"), "elsewhere", "_INBOX_ann.1"):
                connection.subscribe(aim, heard.append)
                connection.publish("catchment.ask.b1.anyone", b"{}", reply=aim)
            answer = await connection.request("catchment.ask.b1.anyone", b"{}")
            assert json.loads(answer.data)["reason"].startswith("a request does not decode")
            assert [one for one in heard if b"decode" in one.data] == []
            await connection.close()

    run(test())


def test_each_client_does_what_its_user_may_and_is_refused_the_rest(guarded: Guarded) -> None:
    async def test() -> None:
        await guarded.started(("b1", "b2"))
        async with (
            guarded.connect("ann", broker="b1") as ann,
            guarded.connect("bob", broker="b2") as bob,
            guarded.connect("root", broker="b1") as root,
        ):
            events = await bob.subscribe(ALL)
            values = await bob.subscribe("SELECT count(*) FROM traffic GROUP BY window(ts, '1 second')")
            assert (await ann.publish("traffic", {"speed": 1.0, "ts": 1_000_000})).events == 1
            assert (await anext(events))["speed"] == 1.0
            for attempt, complaint in (
                (ann.publish("stock", {"price": 1.0}), "user 'ann' may not publish to 'stock'; accepted are traffic"),
                (ann.subscribe(ALL), "user 'ann' may not subscribe to 'traffic'; accepted are no topics"),
                (
                    bob.publish("traffic", {"speed": 2.0}),
                    "user 'bob' may not publish to 'traffic'; accepted are no topi",
                ),
                (bob.advance_time("traffic", 9), "user 'bob' may not publish to 'traffic'"),
                (bob.subscribe("SELECT * FROM stock"), "user 'bob' may not subscribe to 'stock'; accepted are traffic"),
            ):
                with pytest.raises(RequestRefusedError, match=complaint):
                    await attempt
            everything = await root.subscribe("SELECT * FROM stock")
            await root.publish("stock", {"price": 3.0})
            assert (await anext(everything))["price"] == 3.0
            await ann.unadvertise("traffic")
            assert (await anext(values)).value == 1.0

    run(test())


def test_figures_and_subscriptions_are_for_operators(guarded: Guarded) -> None:
    async def test() -> None:
        await guarded.started()
        async with guarded.connect("bob", broker="b1") as client:
            await client.subscribe("SELECT * FROM traffic", name="all")
            root = await guarded.opened("root")
            found = (await figures_of(root, ["b1"]))["b1"]
            assert found is not None
            assert (found.state, found.subscriptions) == ("serving", 1)
            assert [(one.client.partition("/")[0], one.name) async for one in subscriptions_of(root, "b1")] == [
                ("bob", "all")
            ]
            await root.close()

    run(test())


def test_topics_are_added_by_operators(guarded: Guarded) -> None:
    async def test() -> None:
        await guarded.started()

        async def add(user: str) -> Any:
            given = ["topics", "add", "traffic", "lane:int", "--server", guarded.server.url, "--key"]
            return await asyncio.to_thread(CliRunner().invoke, app, [*given, str(guarded.of[user].key)])

        async with guarded.connect("ann", broker="b1") as ann:
            for user in ("ann", "bob"):
                assert (await add(user)).exit_code == 2
            with pytest.raises(CatchmentError, match="has lane"):
                await ann.publish("traffic", {"lane": 1})
            assert (await add("root")).exit_code == 0
            await ann.publish("traffic", {"lane": 1})

    run(test())


def test_the_past_of_a_topic_is_for_its_subscribers(guarded: Guarded) -> None:
    async def test() -> None:
        await guarded.started(("b1", "b2"), history=Kept(keep_us=3_600_000_000))
        async with (
            guarded.connect("ann", broker="b1") as ann,
            guarded.connect("bob", broker="b2") as bob,
            guarded.connect("root", broker="b1") as root,
        ):
            await ann.publish("traffic", {"speed": 1.0})
            await root.publish("stock", {"price": 3.0})
            await ann.publish("traffic", {"speed": 2.0})
            for client in (bob, root):
                past = await client.subscribe(ALL, since="1 hour")
                assert [(await anext(past))["speed"] for _ in range(2)] == [1.0, 2.0]
            # Windows that began before anybody asked.
            values = await bob.subscribe("SELECT sum(speed) FROM traffic GROUP BY window(ts, '1 day')", since=0)
            assert (await anext(await root.subscribe("SELECT * FROM stock", since="1 hour")))["price"] == 3.0
            for attempt, complaint in (
                (bob.subscribe("SELECT * FROM stock", since="1 hour"), "'bob' may not subscribe to 'stock'; accepted"),
                (ann.subscribe(ALL, since="1 hour"), "'ann' may not subscribe to 'traffic'; accepted are no topics"),
                # Nobody but the process of a broker stands between a client that does not ask first and a history.
                (bob.ask("b1", Read("stock", 0, "m")), "'bob' may not subscribe to 'stock'; accepted are traffic"),
                (bob.ask("b1", Find("stock", 0)), "'bob' may not subscribe to 'stock'; accepted are traffic"),
                (ann.ask("b1", Read("traffic", 0, "m")), "'ann' may not subscribe to 'traffic'"),
            ):
                with pytest.raises(RequestRefusedError, match=complaint):
                    await attempt
            page = await bob.ask("b1", Read("traffic", 0, "m"))
            told = FrameReader().decode(page.frame).messages
            assert [(one.topic, one.events.column("speed").to_pylist()) for one in told] == [
                ("traffic", [1.0]), ("traffic", [2.0]),
            ]  # fmt: skip
            await ann.publish("traffic", {"speed": 4.0, "ts": datetime(2100, 1, 1, tzinfo=UTC)})
            await ann.unadvertise("traffic")
            assert (await anext(values)).value == 3.0
            # What is taken back is taken back of the past too.
            operator = await guarded.opened("root")
            users = guarded.access.users
            less = Access({**users, "bob": type(users["bob"])(users["bob"].key, {"subscriber": ("stock",)})})
            await less.store(JetStream(operator))

            async def is_refused() -> bool:
                try:
                    await bob.ask("b1", Read("traffic", 0, "m"))
                except RequestRefusedError as error:
                    return "'bob' may not subscribe to 'traffic'; accepted are stock" in str(error)
                return False

            await eventually(is_refused)
            await operator.close()
            options = {"server": guarded.server.url, "key": str(guarded.of["root"].key)}
            assert "speed" in (await asyncio.to_thread(catchment.OverlaySource(options).schema)).names

    run(test())


def test_nobody_can_be_or_end_the_client_of_somebody_else(guarded: Guarded) -> None:
    """Clients of one name are different clients; that of another user is out of reach under any name."""

    async def test() -> None:
        await guarded.started()
        bob, eve = [await guarded.connect(user, name="same", durable=True) for user in ("bob", "eve")]
        mine, hers = [await client.subscribe(ALL, name="mine") for client in (bob, eve)]
        async with guarded.connect("ann") as ann:
            await ann.publish("traffic", {"speed": 1.0})
            assert [(await anext(one))["speed"] for one in (mine, hers)] == [1.0, 1.0]
            # Eve says that bob's client has gone, on the subjects that are hers, and sends frames for it.
            raw = JetStream(await guarded.opened("eve"))
            frame = bob._session.ask(catchment.broker.messages.UnsubscribeFrom, "mine")[1][0]
            bob._session._sent -= 1
            for name in ("bob/same", "same"):
                subject = client_subject("b1", f"eve/{name}")
                for data in (item_to_bytes(Detached("bob/same")), frame):
                    await raw.store(subject, data)
            again = await guarded.connect("eve", name="bob/same", durable=True)
            assert again.full_name == "eve/bob/same"
            await ann.publish("traffic", {"speed": 2.0})
            assert [(await anext(one))["speed"] for one in (mine, hers)] == [2.0, 2.0]
            for client in (again, bob, eve):
                await client.close()
            await raw.connection.close()

    run(test())


def test_what_a_user_may_no_longer_do_ends_and_a_user_that_is_removed_is_out(guarded: Guarded) -> None:
    async def test() -> None:
        overlay = await guarded.started()
        async with guarded.connect("bob") as bob, guarded.connect("eve") as eve, guarded.connect("ann") as ann:
            subscriptions = [await client.subscribe(ALL) for client in (bob, eve)]
            await ann.publish("traffic", {"speed": 1.0})
            for one in subscriptions:
                assert (await anext(one))["speed"] == 1.0
            users = guarded.access.users
            less = Access({**users, "bob": type(users["bob"])(users["bob"].key, {"subscriber": ("stock",)})})
            root = await guarded.opened("root")
            await less.store(JetStream(root))
            with pytest.raises(ClientDroppedError, match="user 'bob' may not subscribe to 'traffic' any more"):
                await anext(subscriptions[0])
            # Others go on, also when brokers come back.
            overlay.brokers["b1"].kill()
            overlay.brokers["b1"].start()
            await ann.publish("traffic", {"speed": 2.0})
            assert (await anext(subscriptions[1]))["speed"] == 2.0
            async with guarded.connect("bob") as again:
                with pytest.raises(RequestRefusedError, match="may not subscribe to 'traffic'; accepted are stock"):
                    await again.subscribe(ALL)
            guarded.server.reload(less.without("eve"))
            with pytest.raises(AccessError, match=r"does not know the key U\w+ of 'eve'"):
                await anext(subscriptions[1])
            await root.close()

    run(test())


def test_a_renewed_key_replaces_the_old_one_and_all_that_its_user_has_stays(guarded: Guarded, tmp_path: Path) -> None:
    async def test() -> None:
        await guarded.started()
        old = tmp_path / "old.key"
        old.write_bytes((tmp_path / "bob.key").read_bytes())
        away = await guarded.connect("bob", name="d", durable=True)
        await away.subscribe(ALL, name="mine")
        await away.close()
        async with guarded.connect("ann") as ann, guarded.connect("bob") as bob:
            behind = await catchment.connect(guarded.server.url, key=old)
            subscription, left = await bob.subscribe(ALL), await behind.subscribe(ALL)
            await ann.publish("traffic", {"speed": 1.0})
            for one in (subscription, left):
                assert (await anext(one))["speed"] == 1.0
            renewed, seed = guarded.access.with_key("bob")
            replace_key(tmp_path / "bob.key", "bob", seed)
            guarded.server.reload(renewed)
            root = await guarded.opened("root")
            await renewed.store(JetStream(root))
            await root.close()
            # Whoever has the old key is out; whoever finds the new one in its file goes on where it was.
            with pytest.raises(AccessError, match=r"does not know the key U\w+ of 'bob', from .*old.key"):
                await anext(left)
            with pytest.raises(AccessError, match="does not know the key"):
                await catchment.connect(guarded.server.url, key=old)
            await ann.publish("traffic", {"speed": 2.0})
            assert (await anext(subscription))["speed"] == 2.0
            async with guarded.connect("bob", name="d", durable=True) as back:
                mine = await back.subscribe(ALL, name="mine")
                assert [(await anext(mine))["speed"] for _ in range(2)] == [1.0, 2.0]
            await behind.close()

    run(test())


def test_without_a_table_nobody_may_do_anything(guarded: Guarded) -> None:
    async def test() -> None:
        guarded.overlay = Live(
            guarded.server, guarded.folder, [], schemas=TOPICS, operator=guarded.of["root"],
            of_brokers=guarded.of["brokers"],
        )  # fmt: skip
        await guarded.overlay.start()
        async with guarded.connect("ann") as ann:
            with pytest.raises(
                RequestRefusedError, match="user 'ann' may not publish to 'traffic'; accepted are no topics"
            ):
                await ann.publish("traffic", {"speed": 1.0})

    run(test())


# -- keys and certificates --------------------------------------------------------------------------------------------


def test_a_wrong_key_and_none_are_refused_by_name(guarded: Guarded, tmp_path: Path) -> None:
    async def test() -> None:
        url, write = guarded.server.url, lambda name, text: (tmp_path / name).write_text(text)
        write_key(tmp_path / "wrong.key", "ann", new_seed())
        with pytest.raises(
            AccessError, match=r"does not know the key U\w{55} of 'ann', from .*wrong.key; accepted are"
        ):
            await catchment.connect(url, key=tmp_path / "wrong.key")
        with pytest.raises(AccessError, match="lets nobody in without a key, and none was given; accepted is --key"):
            await catchment.connect(url)
        with pytest.raises(AccessError, match="lets nobody in without a key"):
            await catchment.connect(url.replace("nats://", "nats://ann:secret@"))
        seed = (tmp_path / "bob.key").read_text().splitlines()[1]
        for name, text in {
            "empty.key": "", "nameless.key": seed, "public.key": f"# bob\n{guarded.access.users['bob'].key}\n",
            "damaged.key": f"# bob\n{seed[:-1]}{'A' if seed[-1] != 'A' else 'B'}\n",
            "account.key": "# bob\nSAANJIBNEKGCRUWJCPIWUXFBFJLR36FJTFKGBGKAT7AQXH2LVFNQWZJMQU\n",
        }.items():  # fmt: skip
            write(name, text)
            with pytest.raises(
                ConfigurationError, match=rf"{name} has no user's name and seed; accepted is a file that"
            ):
                await catchment.connect(url, key=tmp_path / name)
        with pytest.raises(ConfigurationError, match=r"cannot read the key file .*absent.key: No such file"):
            await catchment.connect(url, key=tmp_path / "absent.key")
        # A key that pretends to be of another user opens the door, and nothing behind it.
        write("pretender.key", f"# ann\n{seed}\n")
        await guarded.started()
        with pytest.raises(AccessError, match="the server does not let 'ann' ask an overlay: Permissions Violation"):
            await catchment.connect(url, key=tmp_path / "pretender.key")

    run(test())


def test_events_travel_through_tls(tmp_path: Path) -> None:
    async def test(guarded: Guarded, ca: Path) -> None:
        assert guarded.server.url.startswith("tls://")
        guarded.of = {name: Credentials(key=one.key, ca=ca) for name, one in guarded.of.items()}
        await guarded.started()
        async with guarded.connect("ann", ca=ca) as ann, guarded.connect("bob", ca=ca) as bob:
            subscription = await bob.subscribe(ALL)
            rows = [{"speed": float(number), "highway": "x" * 1_000} for number in range(5_000)]
            assert (await ann.publish("traffic", rows)).events == 5_000
            async with asyncio.timeout(60):
                assert [(await anext(subscription))["speed"] for _ in rows] == [row["speed"] for row in rows]
            # After a crash of the server, everybody comes back encrypted.
            guarded.server.kill()
            await asyncio.to_thread(guarded.server.start)
            await ann.publish("traffic", {"speed": -1.0})
            assert (await anext(subscription))["speed"] == -1.0

    authority = Authority(tmp_path / "ca")
    made = Guarded(tmp_path, certificates=authority.server())
    with made.server:
        try:
            run(test(made, authority.file))
        finally:
            made.overlay.stop()


def test_a_server_that_cannot_be_trusted_is_refused(tmp_path: Path) -> None:
    right, other = Authority(tmp_path / "right"), Authority(tmp_path / "other")
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)

    async def refused(server: Server, complaint: str, url: str | None = None, **given: Any) -> None:
        with pytest.raises(AccessError, match=complaint):
            await open_connection(url or server.url, "test", Credentials(**given))

    async def accepted(server: Server, **given: Any) -> None:
        await (await open_connection(server.url.replace("tls", "nats"), "test", Credentials(**given))).close()

    async def test_right(server: Server) -> None:
        await accepted(server, ca=right.file)
        await refused(server, "unable to get local issuer.*that .*other/ca.pem has signed", ca=other.file)
        # Whoever speaks plainly is asked for TLS, and then knows nobody who has signed the certificate.
        plain = server.url.replace("tls://", "nats://")
        await refused(server, "certificate of the server at 127.* is refused: .*that the system trusts", url=plain)
        for name, text, complaint in (
            ("none.pem", "nothing", r"none.pem has no certificate: .*accepted is a PEM file"),
            ("absent.pem", None, r"cannot read the file of certificates .*absent.pem: No such file"),
        ):
            if text is not None:
                (tmp_path / name).write_text(text)
            with pytest.raises(ConfigurationError, match=complaint):
                await open_connection(server.url, "test", Credentials(ca=tmp_path / name))

    async def test_plain(server: Server) -> None:
        complaint = "has no TLS, which was asked for; accepted is one that has"
        await refused(server, complaint, ca=right.file)
        await refused(server, complaint, url=server.url.replace("nats://", "tls://"))

    async def test_client_certificate(server: Server) -> None:
        await accepted(server, ca=right.file, certificate=right.client())
        await refused(server, "wants a certificate of this process that it trusts; given is none", ca=right.file)
        await refused(server, "wants a certificate .* given is .*client.pem", ca=right.file, certificate=other.client())

    async def test_expired(server: Server) -> None:
        await refused(server, "is refused: certificate has expired; accepted is one for 127", ca=right.file)

    async def test_other_host(server: Server) -> None:
        await refused(server, "is refused: .*127.0.0.1.*; accepted is one for 127.0.0.1 that .*ca.pem", ca=right.file)

    for place, (certificates, test) in enumerate(
        [
            (right.server(), test_right),
            (None, test_plain),
            (right.server(client_ca=right.file), test_client_certificate),
            (right.server(not_after=long_ago, not_before=long_ago.replace(year=2019)), test_expired),
            (right.server("example.org"), test_other_host),
        ]
    ):
        with Server(tmp_path / f"server{place}", certificates=certificates) as server:
            run(test(server))


# -- the table of users -----------------------------------------------------------------------------------------------


def test_a_table_holds_public_keys_only_and_a_key_file_is_for_its_owner_alone(guarded: Guarded, tmp_path: Path) -> None:
    file = tmp_path / "access.json"
    guarded.access.write(file)
    assert Access.read(file) == guarded.access
    assert Access.read(tmp_path / "absent") == Access()
    for name in ROLES:
        key = tmp_path / f"{name}.key"
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        seed = key.read_text().splitlines()[1]
        assert seed not in file.read_text()
        assert seed not in repr(guarded.of[name].identity())
        assert seed not in (tmp_path / "guarded" / "server.conf").read_text()
    with pytest.raises(
        ConfigurationError, match=r"cannot write the key to .*ann.key: File exists; accepted is a new file"
    ):
        write_key(tmp_path / "ann.key", "ann", new_seed())


def test_roles_of_a_user_add_up() -> None:
    access, seed = Access().with_role("ann", "publisher", ["traffic"])
    assert seed is not None
    access, again = access.with_role("ann", "publisher", ["stock"])
    access, more = access.with_role("ann", "subscriber", ["traffic"])
    assert (again, more) == (None, None)
    assert access.users["ann"].roles == {"publisher": ("stock", "traffic"), "subscriber": ("traffic",)}
    assert access.without("ann") == Access()


@pytest.mark.parametrize(
    ("attempt", "complaint"),
    [
        (
            lambda: Access().with_role("ann", "boss", []),
            "role is 'boss'; accepted are publisher, subscriber, broker, op",
        ),
        (lambda: Access().with_role("ann", "publisher", []), "a publisher has no topics; accepted is at least one"),
        (lambda: Access().with_role("ann", "broker", ["x"]), "a broker has the topics x; accepted are none"),
        (lambda: Access().with_role("a/b", "broker", []), "a user is named 'a/b'; accepted are names without /"),
        (lambda: Access().with_role("", "broker", []), "accepted is a non-empty string"),
        (lambda: Access().with_role("a\nb", "broker", []), "accepted are names without control characters"),
        (
            lambda: Access().with_role("a", "broker", [])[0].with_role("a", "publisher", ["x"]),
            "user 'a' would be broker and publisher; accepted is broker or operator alone",
        ),
        (lambda: Access().without("ann"), "there is no user 'ann'; there are none"),
        (
            lambda: Access.from_bytes(b"{", "file"),
            "file is no table of users: .*accepted is what `catchment access add`",
        ),
        (lambda: Access.from_bytes(b'{"version": 2}', "file"), "file has version 2; accepted is 1"),
        (
            lambda: Access.from_bytes(b'{"users": {"a": {"key": "U", "roles": {"king": []}}}}', "file"),
            "role is 'king'; accepted are",
        ),
    ],
)
def test_what_is_no_user_or_role_is_refused(attempt: Callable[[], object], complaint: str) -> None:
    with pytest.raises(CatchmentError, match=complaint):
        attempt()


def test_credentials_of_anyone_are_open() -> None:
    assert (OPEN.user, OPEN.identity(), Client("nats://x").full_name.split("/")[0]) == ("anyone", None, "anyone")


def test_signs_of_life_of_every_user_reach_the_broker(guarded: Guarded) -> None:
    async def test() -> None:
        overlay = await guarded.started(more={"client_lease_us": 600_000})
        async with guarded.connect("bob", name="alive") as alive:
            silent = await guarded.connect("ann", name="silent")
            assert silent._beating is not None
            silent._beating.cancel()

            async def is_gone() -> bool:
                return (
                    "misses a client: client ann/silent, reason has said nothing for 0.6 seconds: it is gone"
                    in overlay.said
                )

            await eventually(is_gone)
            await alive.subscribe(ALL)
            assert "bob" not in overlay.said
            await silent.close()

    run(test())


# -- commands ---------------------------------------------------------------------------------------------------------


def command(folder: Path, *arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False, **how
    )


def documented(folder: Path, port: str) -> Iterator[list[str]]:
    """The commands of the section on users, with another port, in their order."""
    text = (Path(__file__).parents[2] / "docs" / "live.md").read_text()
    section = text.partition("## TLS and users")[2].partition("\n## ")[0]
    for line in section.splitlines():
        if line.startswith("    ") and line.strip():
            yield shlex.split(line.strip().replace("127.0.0.1:4222", f"127.0.0.1:{port}"))


def test_users_are_added_listed_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def done(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["access", *arguments])

    assert "the key of ann is in ann.key" in done("add", "ann", "--role", "publisher", "--topic", "traffic").output
    assert done("add", "ann", "--role", "subscriber", "--topic", "stock", "--topic", "traffic").output == ""
    (ann,) = json.loads(done("list", "--json").stdout)
    assert ann["roles"] == {"publisher": ["traffic"], "subscriber": ["stock", "traffic"]}
    assert ann["key"] == Credentials(key=Path("ann.key")).identity().public_key  # type: ignore[union-attr]
    assert done("list").output.count("ann") == 2
    assert f'"nkey": "{ann["key"]}"' in done("server-config", "--store", "streams").stdout
    for arguments, complaint in {
        ("remove", "bob"): "there is no user 'bob'; there are ann",
        ("add", "bob", "--role", "boss"): "role is 'boss'; accepted are",
        ("add", "bob", "--role", "broker", "--key", "ann.key"): "cannot write the key to ann.key: File exists",
        (
            "server-config",
            "--store",
            "x",
            "--certificate",
            "c.pem",
        ): "accepted are both --certificate and",
    }.items():
        result = done(*arguments)
        assert (result.exit_code, complaint in result.stderr) == (2, True), result.output
    # A key that could not be written belongs to nobody.
    assert [one["user"] for one in json.loads(done("list", "--json").stdout)] == ["ann"]
    before = Path("ann.key").read_text()
    assert done("renew", "ann").output == "the new key of ann is in ann.key\n"
    assert Path("ann.key").read_text() != before
    assert stat.S_IMODE(Path("ann.key").stat().st_mode) == 0o600
    (renewed,) = json.loads(done("list", "--json").stdout)
    assert renewed["key"] == Credentials(key=Path("ann.key")).identity().public_key  # type: ignore[union-attr]
    assert renewed == {**ann, "key": renewed["key"]}
    done("add", "eve", "--role", "subscriber", "--topic", "traffic", "--http")
    token = Path("eve.token").read_text()
    assert "the new token of eve is in eve.token" in done("renew", "eve").output
    access = Access.read(Path("access.json"))
    assert (access.user_of(token.strip()), access.user_of(Path("eve.token").read_text().strip())) == (None, "eve")
    for arguments, complaint in {
        ("renew", "bob"): "there is no user 'bob'; there are ann, eve",
        ("renew", "eve", "--key", "ann.key"): "ann.key has a key of 'ann'; accepted is one of 'eve', or a new file",
    }.items():
        result = done(*arguments)
        assert (result.exit_code, complaint in result.stderr) == (2, True), result.output
    assert Access.read(Path("access.json")) == access
    assert done("remove", "eve").exit_code == 0
    assert done("remove", "ann").exit_code == 0
    assert json.loads(done("list", "--json").stdout) == []


@pytest.mark.long
def test_the_commands_of_the_documentation_work_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "overlay.toml").write_text(TOML)
    authority = Authority(tmp_path / "ca")
    made = authority.server()
    for source, target in ((made.certificate, "server.pem"), (made.key, "server.key"), (authority.file, "ca.pem")):
        (tmp_path / target).write_bytes(source.read_bytes())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with ExitStack() as stack:
        server: subprocess.Popen[bytes] | None = None
        subscriber: subprocess.Popen[str] | None = None
        seen = []
        for words in documented(tmp_path, port):
            seen.append(words[1])
            if words[1:3] == ["access", "server-config"]:
                written = command(tmp_path, *words[1 : words.index(">")], "--listen", f"127.0.0.1:{port}")
                (tmp_path / words[-1]).write_text(written.stdout)
            elif words[0] == "nats-server" and words[1] == "-c":
                program = Path(sys.executable).with_name("nats-server")
                server = subprocess.Popen([program, *words[1:]], cwd=tmp_path, stderr=subprocess.DEVNULL)
                stack.callback(lambda one=server: (one.terminate(), one.wait()))  # type: ignore[misc]
                _wait_for(port)
            elif words[0] == "nats-server":
                assert server is not None
                server.send_signal(signal.SIGHUP)
            elif words[1] == "up":
                with started(*words[1:], "--log", "text", cwd=tmp_path) as up:
                    assert "2 brokers run at" in line_with(up.stderr, "2 brokers run at")
                assert up.returncode == 0
            elif words[1] == "broker":
                broker = stack.enter_context(started(*words[1:], "--log", "text", cwd=tmp_path))
                line_with(broker.stderr, f"broker {words[2]} takes inputs")
            elif words[1] == "subscribe":
                subscriber = stack.enter_context(started(*words[1:], cwd=tmp_path))
                line_with(subscriber.stderr, "subscribed")
            elif words[1] == "publish":
                found = command(tmp_path, *words[1:], input='{"speed": 50.0}\n')
                assert (found.returncode, "published 1" in found.stderr) == (0, True), found.stderr
                assert subscriber is not None
                assert json.loads(line_with(subscriber.stdout, "speed"))["speed"] == 50.0
            else:
                found = command(tmp_path, *words[1:])
                assert found.returncode == 0, found.stderr
        assert {"access", "up", "broker", "subscribe", "publish"} <= set(seen)
        # The user is out: its process ends, and says why.
        assert subscriber is not None
        assert "does not know the key" in line_with(subscriber.stderr, "error")


def _wait_for(port: str) -> None:
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", int(port))) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the server did not start")


@pytest.mark.long
def test_an_overlay_follows_its_file_of_users(tmp_path: Path) -> None:
    (tmp_path / "overlay.toml").write_text(TOML)
    for name in ("ann", "bob"):
        assert command(tmp_path, "access", "add", name, "--role", "publisher", "--topic", "traffic").returncode == 0
    with started(
        "up", "overlay.toml", "--access", "access.json", "--processes", "1", "--log", "text", cwd=tmp_path
    ) as up:
        url = line_with(up.stderr, "2 brokers run at").split(" at ")[1].split(": ")[0]

        minutes = itertools.count()

        def publish(user: str) -> subprocess.CompletedProcess[str]:
            arguments = ("publish", "traffic", "--server", url, "--at", "b1", "--key", f"{user}.key")
            # Windows close when their publisher has gone: each comes behind the one before.
            return command(
                tmp_path, *arguments, input=f'{{"speed": 50.0, "ts": "2026-01-01 00:{next(minutes):02}:01"}}\n'
            )

        assert "published 1" in publish("ann").stderr
        assert json.loads(line_with(up.stdout, "slow"))["value"] == 50.0
        assert command(tmp_path, "access", "remove", "ann").returncode == 0
        assert line_with(up.stderr, "users are as the file says now: file access.json, users 1")
        assert "does not know the key" in publish("ann").stderr
        assert "published 1" in publish("bob").stderr
        (tmp_path / "access.json").write_text("nonsense")
        assert line_with(up.stderr, "users stay as they were: reason access.json is no table of users")
        assert "published 1" in publish("bob").stderr
    assert up.returncode == 0
