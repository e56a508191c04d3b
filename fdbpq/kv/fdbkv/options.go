package fdbkv

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// API versions. The newest is that of the binding this package is built with.
const (
	DefaultAPIVersion = 730
	MinAPIVersion     = 620
	MaxAPIVersion     = 730
)

// DefaultTransactionTimeout leaves room for FoundationDB's own five seconds
// and a recovery of the cluster.
const DefaultTransactionTimeout = 10 * time.Second

// Options says which cluster to use and how. The zero value is the default
// cluster with default limits.
type Options struct {
	// ClusterFile is the path of the cluster file. The client library rewrites it when the
	// coordinators change, so it must be writable. Empty means what FoundationDB's own tools use:
	// $FDB_CLUSTER_FILE, ./fdb.cluster, or /etc/foundationdb/fdb.cluster.
	ClusterFile string

	// APIVersion is the version of the client library's behaviour, from MinAPIVersion to what the
	// library supports; 0 means DefaultAPIVersion. All databases of a process must use the same.
	APIVersion int

	// TransactionTimeout bounds the life of each transaction, in steps of one
	// millisecond; 0 means DefaultTransactionTimeout.
	TransactionTimeout time.Duration
}

func (o Options) withDefaults() Options {
	o.APIVersion = cmp.Or(o.APIVersion, DefaultAPIVersion)
	o.TransactionTimeout = cmp.Or(o.TransactionTimeout, DefaultTransactionTimeout)
	return o
}

// Validate returns everything that is wrong with o, joined, each a *kv.OptionError, or nil.
func (o Options) Validate() error {
	o = o.withDefaults()
	var problems []error
	check := func(ok bool, field string, value any, format string, args ...any) {
		if !ok {
			problems = append(problems, &kv.OptionError{Package: "fdbkv", Field: field, Value: value, Want: fmt.Sprintf(format, args...)})
		}
	}
	check(o.APIVersion >= MinAPIVersion && o.APIVersion <= MaxAPIVersion,
		"APIVersion", o.APIVersion, "%d to %d", MinAPIVersion, MaxAPIVersion)
	check(o.TransactionTimeout >= time.Millisecond && o.TransactionTimeout.Milliseconds() <= math.MaxInt32,
		"TransactionTimeout", o.TransactionTimeout, "1ms to %v", math.MaxInt32*time.Millisecond)
	return errors.Join(problems...)
}
