//go:build fdb

package fdbkv

import (
	"errors"
	"fmt"
	"testing"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// kinds are the errors of the contract that a code can be turned into.
var kinds = []error{
	kv.ErrConflict, kv.ErrTooOld, kv.ErrThrottled, kv.ErrCommitUnknown, kv.ErrTooLarge,
	kv.ErrUnavailable, kv.ErrClosed, kv.ErrUsed, kv.ErrInternal,
}

// kind returns the one error of the contract that err is, or nil.
func kind(t *testing.T, err error) error {
	t.Helper()
	var found error
	for _, k := range kinds {
		if errors.Is(err, k) {
			if found != nil {
				t.Errorf("%v is both %v and %v", err, found, k)
			}
			found = k
		}
	}

	return found
}

// FoundationDB's error codes have their meaning in the contract, of a read and of a commit.
func TestExplain(t *testing.T) {
	for _, test := range []struct {
		code           int
		read, ofCommit error
	}{
		{1007, kv.ErrTooOld, kv.ErrTooOld},
		{1009, kv.ErrThrottled, kv.ErrThrottled},
		{1020, kv.ErrConflict, kv.ErrConflict},
		{1021, kv.ErrCommitUnknown, kv.ErrCommitUnknown},
		{1022, kv.ErrCommitUnknown, kv.ErrCommitUnknown},
		{1031, kv.ErrUnavailable, kv.ErrCommitUnknown},
		{1037, kv.ErrThrottled, kv.ErrThrottled},
		{1038, kv.ErrUnavailable, kv.ErrUnavailable},
		{1039, kv.ErrThrottled, kv.ErrCommitUnknown},
		{1042, kv.ErrThrottled, kv.ErrThrottled},
		{1051, kv.ErrThrottled, kv.ErrThrottled},
		{1078, kv.ErrThrottled, kv.ErrThrottled},
		{1213, kv.ErrThrottled, kv.ErrThrottled},
		{1223, kv.ErrThrottled, kv.ErrThrottled},
		{1235, kv.ErrThrottled, kv.ErrThrottled},
		{1242, kv.ErrThrottled, kv.ErrThrottled},
		{1515, kv.ErrUnavailable, kv.ErrUnavailable},
		{2004, kv.ErrInternal, kv.ErrInternal}, // key_outside_legal_range: a mistake of the caller
		{2101, kv.ErrTooLarge, kv.ErrTooLarge},
		{2102, kv.ErrTooLarge, kv.ErrTooLarge},
		{2103, kv.ErrTooLarge, kv.ErrTooLarge},
		{2125, kv.ErrUnavailable, kv.ErrUnavailable},
		{4100, kv.ErrInternal, kv.ErrCommitUnknown}, // internal_error
	} {
		t.Run(fmt.Sprint(test.code), func(t *testing.T) {
			if got := kind(t, explain(fdb.Error{Code: test.code})); got != test.read {
				t.Errorf("before a commit it is %v, want %v", got, test.read)
			}
			if got := kind(t, explainCommit(fdb.Error{Code: test.code})); got != test.ofCommit {
				// An error that wraps ErrCommitUnknown may say more.
				t.Errorf("of a commit it is %v, want %v", got, test.ofCommit)
			}
		})
	}
}

// The retry loops of the binding look for the code, also below errors of the layers above.
func TestErrorsKeepTheCode(t *testing.T) {
	for code := range meanings {
		for _, err := range []error{
			explain(fdb.Error{Code: code}),
			explainCommit(fdb.Error{Code: code}),
		} {
			var found fdb.Error
			if !errors.As(fmt.Errorf("wrapped: %w", err), &found) || found.Code != code {
				t.Errorf("%v does not show its code %d", err, code)
			}
		}
	}
}
