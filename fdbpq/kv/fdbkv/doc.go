// Package fdbkv keeps a [kv.Database] in a FoundationDB cluster, through
// FoundationDB's own Go binding. It adds nothing to the binding but the
// contract of package kv: contexts, limits in time, and errors by meaning.
//
// The binding is C code and needs FoundationDB's client library with its
// headers, so the engine is compiled only with the build tag fdb:
//
//	go build -tags fdb ./...
//
// Without the tag there is the same Open, which returns an error that says so.
//
// # Process-wide state
//
// The client library chooses its API version and starts its network thread once
// for the life of a process. Databases of one process therefore share the API
// version, and the network thread outlives them all. Handles of one cluster
// file are shared too, also with code that uses the binding directly, so Close
// ends the transactions of its own DB and leaves the handle alone.
//
// The client library reads its network options (TLS certificates, trace logs,
// further client versions) from environment variables such as
// FDB_TLS_CERTIFICATE_FILE and FDB_NETWORK_OPTION_TRACE_ENABLE.
//
// # Time limits
//
// FoundationDB's client never gives up on a cluster that does not answer.
// Options.TransactionTimeout bounds each transaction from Begin on. If it runs
// out before Commit was called the error is kv.ErrUnavailable and nothing was
// written; during Commit it is kv.ErrCommitUnknown, and so is the end of the
// context.
package fdbkv
