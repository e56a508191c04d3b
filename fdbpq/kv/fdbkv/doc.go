// Package fdbkv makes FoundationDB a [kv.Database], through FoundationDB's own Go binding.
//
//   - Open opens a cluster by its cluster file.
//   - New makes a kv.Database of a database that your program has open, for a Batcher, a Popper or
//     a bridge.
//   - Wrap and WrapRead let queues work in a transaction that your program began with the binding.
//
// To the binding it adds only the contract of package kv: contexts, time limits, and errors with
// a meaning.
//
// # Building
//
// The binding is C code and needs FoundationDB's client library with its headers. So this package
// is compiled only with the build tag fdb:
//
//	go build -tags fdb ./...
//
// Without the tag, Open returns an error that says so. Calls of Wrap, WrapRead and New do not
// compile, and the compiler's message names the tag.
//
// # Process-wide state
//
// The client library selects its API version and starts its network thread once in the life of a
// process. So all databases of a process share the API version, and the network thread outlives
// them. The binding also shares the handles of a cluster file, even with code outside this package.
// So Close ends the transactions of its own DB and leaves the handle open.
//
// Open makes the client library fail transactions if no version of it is of the release of the
// servers, with kv.ErrUnavailable; without that they wait until their time is over.
//
// The client library reads its network options (TLS certificates, trace logs, further client
// versions) from environment variables such as FDB_TLS_CERTIFICATE_FILE and
// FDB_NETWORK_OPTION_TRACE_ENABLE.
//
// # Time limits
//
// FoundationDB's client waits indefinitely for a cluster that does not answer. So
// Options.TransactionTimeout bounds each transaction from Begin on. If it runs out before Commit is
// called, the error is kv.ErrUnavailable, and nothing was written. If it runs out during Commit, or
// the context ends then, the error is kv.ErrCommitUnknown. The limit does not apply to transactions
// that Wrap and WrapRead take: set options of the binding for those.
package fdbkv
