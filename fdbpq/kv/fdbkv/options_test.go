package fdbkv_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
)

// The defaults and the bounds of each option are valid.
func TestValidOptions(t *testing.T) {
	for _, o := range []fdbkv.Options{
		{},
		{APIVersion: fdbkv.MinAPIVersion, TransactionTimeout: time.Millisecond},
		{APIVersion: fdbkv.MaxAPIVersion, TransactionTimeout: time.Hour},
	} {
		if err := o.Validate(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// Every problem is named, and Open finds them too.
func TestInvalidOptions(t *testing.T) {
	for _, o := range []fdbkv.Options{
		{APIVersion: fdbkv.MinAPIVersion - 1, TransactionTimeout: -1},
		{APIVersion: fdbkv.MaxAPIVersion + 1, TransactionTimeout: time.Microsecond},
		{APIVersion: -1, TransactionTimeout: 30 * 24 * time.Hour},
	} {
		err := o.Validate()
		if err == nil {
			t.Errorf("%+v: no error", o)
			continue
		}

		for _, want := range []string{"APIVersion", "TransactionTimeout"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %q does not name the %s", o, err, want)
			}
		}
		if _, err := fdbkv.Open(o); err == nil {
			t.Errorf("Open(%+v): no error", o)
		}
	}
}
