//go:build fdb

package fdbkv

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// meaning is what an error code says in terms of the contract.
type meaning struct {
	err error

	// notWritten: nothing was written, even if Commit returned the error. Any other error of a
	// commit leaves the outcome open.
	notWritten bool
}

// meanings lists the codes that clients can get, from FoundationDB's error_definitions.h.
// notWritten follows FoundationDB's own predicate for retryable errors that did not commit.
var meanings = map[int]meaning{
	1004: {kv.ErrUnavailable, false},   // timed_out
	1007: {kv.ErrTooOld, true},         // transaction_too_old
	1009: {kv.ErrThrottled, true},      // future_version: storage servers lag behind
	1020: {kv.ErrConflict, true},       // not_committed
	1021: {kv.ErrCommitUnknown, false}, // commit_unknown_result
	1022: {kv.ErrCommitUnknown, false}, // commit_unknown_result_fatal
	1025: {kv.ErrUsed, false},          // transaction_cancelled
	1026: {kv.ErrUnavailable, false},   // connection_failed
	1031: {kv.ErrUnavailable, false},   // transaction_timed_out
	1037: {kv.ErrThrottled, true},      // process_behind
	1038: {kv.ErrUnavailable, true},    // database_locked: by an operator, for long
	1039: {kv.ErrThrottled, false},     // cluster_version_changed
	1041: {kv.ErrUnavailable, false},   // lookup_failed
	1042: {kv.ErrThrottled, true},      // commit_proxy_memory_limit_exceeded
	1043: {kv.ErrUnavailable, false},   // shutdown_in_progress
	1051: {kv.ErrThrottled, true},      // batch_transaction_throttled
	1054: {kv.ErrUnavailable, false},   // wrong_connection_file
	1078: {kv.ErrThrottled, true},      // grv_proxy_memory_limit_exceeded
	1100: {kv.ErrUnavailable, false},   // broken_promise
	1213: {kv.ErrThrottled, true},      // tag_throttled
	1223: {kv.ErrThrottled, true},      // proxy_tag_throttled
	1235: {kv.ErrThrottled, true},      // transaction_throttled_hot_shard, of 7.4
	1242: {kv.ErrThrottled, true},      // transaction_rejected_range_locked, of 7.4
	1511: {kv.ErrUnavailable, true},    // file_not_found: the cluster file
	1513: {kv.ErrUnavailable, true},    // file_not_readable: the cluster file
	1515: {kv.ErrUnavailable, true},    // no_cluster_file_found
	2017: {kv.ErrUsed, false},          // used_during_commit: the commit may go on
	2100: {kv.ErrUnavailable, true},    // incompatible_protocol_version
	2101: {kv.ErrTooLarge, true},       // transaction_too_large
	2102: {kv.ErrTooLarge, true},       // key_too_large
	2103: {kv.ErrTooLarge, true},       // value_too_large
	2104: {kv.ErrUnavailable, true},    // connection_string_invalid: in the cluster file
	2107: {kv.ErrUnavailable, true},    // tls_error
	2123: {kv.ErrUnavailable, true},    // no_external_client_provided
	2124: {kv.ErrUnavailable, true},    // all_external_clients_failed
	2125: {errIncompatible, true},      // incompatible_client
}

// errIncompatible says more than the client library's own text.
var errIncompatible = fmt.Errorf("%w: the cluster has another release of FoundationDB than any "+
	"client library of this process: install one of the servers' release", kv.ErrUnavailable)

// explain wraps err in its meaning before a commit, when nothing can have been written yet.
func explain(err error) error {
	code, _ := errors.AsType[fdb.Error](err)
	return fmt.Errorf("%w: %w", cmp.Or(meanings[code.Code].err, kv.ErrInternal), err)
}

// explainCommit is explain for an error of a commit.
func explainCommit(err error) error {
	if code, ok := errors.AsType[fdb.Error](err); ok && notWritten(code.Code) {
		return explain(err)
	}
	if explained := explain(err); errors.Is(explained, kv.ErrCommitUnknown) {
		return explained
	}
	return fmt.Errorf("%w: %w", kv.ErrCommitUnknown, err)
}

// notWritten reports whether a commit that failed with code certainly wrote nothing.
func notWritten(code int) bool {
	if m, ok := meanings[code]; ok {
		return m.notWritten
	}

	// The client library itself returns errors from 2000 on, before it sends anything.
	return code >= 2000 && code < 3000
}

// isEnded reports whether err is what end leaves behind: transaction_cancelled, or the time limit
// that it sets. That does not say why.
func isEnded(err error) bool {
	code, _ := errors.AsType[fdb.Error](err)
	return code.Code == 1025 || code.Code == 1031
}
