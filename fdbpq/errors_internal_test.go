package fdbpq

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Any error but those of a store is only of its operation: the others of the transaction go on.
func TestErrorsOfOperations(t *testing.T) {
	ofOps := map[string]error{
		"ErrEmpty": ErrEmpty, "ErrPaused": ErrPaused, "ErrRate": ErrRate,
		"ErrGroupLimits": ErrGroupLimits, "ErrManyGroups": ErrManyGroups,
		"ErrMaxLeased": ErrMaxLeased, "ErrFull": ErrFull, "ErrFullBytes": ErrFullBytes,
		"ErrMessageTooLarge": ErrMessageTooLarge, "ErrKeyspace": ErrKeyspace,
		"ErrQueueName": ErrQueueName, "ErrID": ErrID, "ErrToken": ErrToken,
		"ErrLeaseLost": ErrLeaseLost, "ErrDone": ErrDone, "ErrNoValue": ErrNoValue,
		"ErrItemTooLarge": ErrItemTooLarge, "ErrMaxBytes": ErrMaxBytes, "ErrNoRoom": ErrNoRoom,
		"ErrNoRoomForItem": ErrNoRoomForItem, "ErrExists": ErrExists, "ErrNotFound": ErrNotFound,
		"ErrLeased": ErrLeased, "ErrNotLeased": ErrNotLeased,
		"ErrNotDeadLetter": ErrNotDeadLetter, "ErrJoined": ErrJoined, "ErrJoins": ErrJoins,
		"ErrManyRates": ErrManyRates, "ErrMaxRecords": ErrMaxRecords, "ErrNoSource": ErrNoSource,
		"ErrSettings": ErrSettings, "ErrOp": ErrOp, "ErrCorrupt": ErrCorrupt,
		"ErrUnfinished": ErrUnfinished, "ErrStoreVersion": ErrStoreVersion,
	}
	for _, name := range sentinels(t, "errors.go") {
		if ofOps[name] == nil {
			t.Errorf("the test lacks %s", name)
		}
	}
	for name, err := range map[string]error{
		"no sentinel": errors.New("one that nobody thought of"), "RateError": &RateError{},
		"GroupLimitsError": &GroupLimitsError{}, "LostLeases": &LostLeases{Lost: []int{0}},
		"not yet": state.ErrNotYet, "more expired": state.ErrMoreExpired,
		"cannot hold": codec.ErrCannotHold,
	} {
		ofOps[name] = err
	}

	for name, err := range ofOps {
		x := &txn{results: make([]Result, 2)}
		err = fmt.Errorf("in context: %w", err)
		if ends := x.failOps(err, 1); ends != nil || x.results[1].Err != err ||
			x.results[0].Err != nil {
			t.Errorf("%s ends the transaction with %v", name, ends)
		}
	}
}

// All errors of a store end the transaction, and no operation gets one as its own.
func TestErrorsOfTheStore(t *testing.T) {
	ofStore := map[string]error{
		"ErrConflict": kv.ErrConflict, "ErrTooOld": kv.ErrTooOld, "ErrThrottled": kv.ErrThrottled,
		"ErrCommitUnknown": kv.ErrCommitUnknown, "ErrTooLarge": kv.ErrTooLarge,
		"ErrUnavailable": kv.ErrUnavailable, "ErrCorrupt": kv.ErrCorrupt,
		"ErrClosed": kv.ErrClosed, "ErrBlind": kv.ErrBlind, "ErrUsed": kv.ErrUsed,
		"ErrInternal": kv.ErrInternal,
	}
	for _, name := range sentinels(t, "kv/kv.go") {
		if ofStore[name] == nil {
			t.Errorf("the test lacks %s", name)
		}
	}
	ofStore["Canceled"], ofStore["Deadline"] = context.Canceled, context.DeadlineExceeded

	for name, err := range ofStore {
		x := &txn{results: make([]Result, 1)}
		err = kv.WithCause(fmt.Errorf("in context: %w", err), "", errors.New("cause"))
		if ends := x.failOps(err, 0); ends != err || x.results[0].Err != nil {
			t.Errorf("%s: the transaction ends with %v, the operation with %v", name, ends,
				x.results[0].Err)
		}
	}
}

// sentinels returns the errors that a file of Go exports.
func sentinels(t *testing.T, file string) (names []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if value, is := n.(*ast.ValueSpec); is && strings.HasPrefix(value.Names[0].Name, "Err") {
			names = append(names, value.Names[0].Name)
		}
		return true
	})
	if len(names) == 0 {
		t.Fatalf("%s has no errors", file)
	}
	return names
}
