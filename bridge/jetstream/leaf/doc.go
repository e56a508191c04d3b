// Package leaf is a raw leaf node connection to a NATS server: it subscribes, publishes, and knows
// who subscribes at the server. It knows nothing of queues.
//
// A leaf node may do what a client may not. The server takes a reply $JS.ACK.<...>@<subject> apart
// and shows clients <subject> and the part before the @, so that a message looks as if JetStream had
// sent it. A message may have a status line, such as "NATS/1.0 404 No Messages". And the server tells
// which subjects are subscribed to.
//
// The protocol is NATS's own, without a promise to stay as it is; what is used here is as in
// nats-server 2.15. Only headers are required: no compression, no WebSocket, no TLS before INFO.
//
// # Guarantees
//
// While Connected, subscriptions are in force and interest is complete. Publish is ordered, and at
// most once: a message that Flush has not confirmed may be lost with the connection. Whatever the
// server sends, memory stays bounded: lines by 64 KiB, messages by max_payload or at most 64 MiB, the
// table of interest by 256 MiB, output by 64 MiB. A frame that is cut, too long or unknown ends the
// connection with an error that quotes its start; then it is made anew.
//
// A server ends the connection of a leaf node that publishes what its user may not. It tells the
// permissions first, so Publish refuses that here. What allow_responses would allow besides is not
// told, so it does not count: list the subjects. The payload limit of an account or a user is not
// told either; a connection that it ended teaches it.
//
// Interest in names is a map, and interest in wildcards is nats-server's own generic tree, package
// gsl: 600 bytes for the wildcard of a client's inboxes, 150 ns for a look among 100,000. If there is
// no room for all, every subject counts as subscribed to until there is.
package leaf
