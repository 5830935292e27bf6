"""Brokers as processes, and clients, on the streams of a NATS server.

wire         the NATS protocol over one connection
jetstream    stored messages in one order; buckets: values by key
names        of streams and subjects
entries      what a message of a broker's input stream is to the broker
running      a broker's process, from life to life; life: recovery and steps on one connection; context: what they share
recovery     what must be there when a life begins; records: where steps have ended
outlets      where frames go; deliveries: the streams of clients
history      what brokers have accepted, to be read from any point
presence     which clients are alive
notices      what the process tells its broker: room, timers
purging      when a snapshot is due, and what it makes useless; snapshots: its pieces
leases       which process is a broker; marks: what is stored with each frame
description  what brokers of one overlay agree on
asking       what clients ask of a broker's process; answering: its side
access       users and their roles; permissions: what a server lets them do; granting: what their brokers do
credentials  how a process shows who it is
client       an application's side; blocking: the same without asyncio
sending, gathering, arriving, taking, subscriptions: the parts of a client
server       a NATS server of our own
"""
