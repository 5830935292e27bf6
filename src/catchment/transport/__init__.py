"""Brokers as processes, and clients, on the streams of a NATS server.

wire         the NATS protocol over one connection
jetstream    stored messages in one order; buckets: values by key
names        of streams and subjects
entries      what a message of a broker's input stream is to the broker
running      a broker's process: recovery, steps, snapshots
outlets      where its frames go
snapshots, leases, description
client       an application's side; blocking: the same without asyncio
server       a NATS server of our own
"""
