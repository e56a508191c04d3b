// Package leaf is a raw leaf node connection to a NATS server. It subscribes, publishes, and knows
// which subjects have subscribers at the server. It knows nothing of queues.
//
// A leaf node may do what a client may not:
//
//   - The server splits a reply $JS.ACK.<...>@<subject>, and shows clients <subject> as the subject
//     and the part before the @ as the reply. So a message looks as if JetStream had sent it.
//   - A message may have a status line, such as "NATS/1.0 404 No Messages".
//   - The server tells which subjects have subscribers.
//
// The protocol is NATS's own, and NATS does not promise to keep it. This package uses it as in
// nats-server 2.15, and requires only headers: no compression, no WebSocket, no TLS before INFO.
//
// # Guarantees
//
// While Connected, subscriptions are in force and interest is complete. Publish is ordered, and at
// most once: a message that Flush has not confirmed may be lost with the connection.
//
// Whatever the server sends, memory stays bounded: lines by 64 KiB, messages by max_payload or at
// most 64 MiB, the table of interest by 256 MiB, output by 64 MiB. A frame that is cut, too long or
// unknown ends the connection with an error that quotes its start. Then Run reconnects.
//
// A server ends the connection of a leaf node that publishes what its user may not. It tells the
// permissions first, so Publish refuses such messages here. It does not tell what allow_responses
// allows besides, so list those subjects. Nor does it tell the payload limit of an account or a
// user; Publish knows that after the limit has ended a connection.
//
// Interest in names is a map. Interest in wildcards is nats-server's own generic tree, package gsl:
// 600 bytes for the wildcard of a client's inboxes, 150 ns for a look among 100,000. If there is no
// room for all interest, every subject counts as subscribed to until there is.
package leaf
