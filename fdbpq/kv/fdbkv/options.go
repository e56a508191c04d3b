package fdbkv

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Versions of the API of the client library. The newest belongs to the binding that this package is
// built with.
const (
	DefaultAPIVersion = 730
	MinAPIVersion     = 620
	MaxAPIVersion     = 730
)

// DefaultTransactionTimeout leaves room for FoundationDB's own five seconds and a recovery of the
// cluster.
const DefaultTransactionTimeout = 10 * time.Second

// Options says which cluster to use and how. The zero value is the default cluster with default
// limits.
type Options struct {
	// ClusterFile is the path of the cluster file. The client library rewrites it when the
	// coordinators change, so it must be writable. Empty means what FoundationDB's own tools use:
	// $FDB_CLUSTER_FILE, ./fdb.cluster, or /etc/foundationdb/fdb.cluster.
	ClusterFile string

	// APIVersion is the version of the client library's behaviour, from MinAPIVersion to what the
	// library supports. All databases of a process must use the same. 0 means DefaultAPIVersion.
	APIVersion int

	// TransactionTimeout bounds the life of each transaction. It is rounded down to milliseconds.
	// 0 means DefaultTransactionTimeout.
	TransactionTimeout time.Duration
}

func (o Options) withDefaults() Options {
	o.APIVersion = cmp.Or(o.APIVersion, DefaultAPIVersion)
	o.TransactionTimeout = cmp.Or(o.TransactionTimeout, DefaultTransactionTimeout)
	return o
}

// Validate returns all problems of o, joined, each a *kv.OptionError, or nil.
func (o Options) Validate() error {
	o = o.withDefaults()
	var problems []error
	check := func(ok bool, field string, value any, format string, args ...any) {
		if !ok {
			want := fmt.Sprintf(format, args...)
			problems = append(problems,
				&kv.OptionError{Package: "fdbkv", Field: field, Value: value, Want: want})
		}
	}

	check(o.APIVersion >= MinAPIVersion && o.APIVersion <= MaxAPIVersion,
		"APIVersion", o.APIVersion, "%d to %d; clusters of FoundationDB 7.4 take %d too",
		MinAPIVersion, MaxAPIVersion, MaxAPIVersion)
	timeout, most := o.TransactionTimeout, math.MaxInt32*time.Millisecond
	check(timeout >= time.Millisecond && timeout.Milliseconds() <= math.MaxInt32,
		"TransactionTimeout", timeout, "1ms to %v", most)
	return errors.Join(problems...)
}
