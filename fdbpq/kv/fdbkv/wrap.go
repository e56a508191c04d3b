//go:build fdb

package fdbkv

import (
	"context"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Wrap lets the queues work in a transaction of the binding, so that pushes and pops commit
// together with the program's own reads and writes. The program keeps the transaction: Commit of
// the result fails with ErrOwnerCommits, and Cancel ends the result but not the transaction.
//
// Call it inside the function given to fdb.Database.Transact, once for each attempt. Return the
// errors of the queues from that function, wrapped or not: they wrap the binding's fdb.Error, so
// Transact retries what it always retries. That includes error 1021, after which the first attempt
// may have committed. As with all work in Transact, doing it twice should do no harm.
//
// Wrap waits until the transaction has its read version, so a time taken afterwards is no older
// than the data.
func Wrap(tr fdb.Transaction) kv.Transaction {
	_, _ = tr.GetReadVersion().Get() // The first read returns the error.
	return wrapped{wrap(tr)}
}

// WrapRead lets the queues read in a transaction of the binding: peek, or count items. It takes
// what fdb.Database.ReadTransact gives to its function, or a Snapshot. Reads of a Snapshot add no
// read conflict ranges. Return the errors of the queues as described at Wrap.
func WrapRead(rt fdb.ReadTransaction) kv.Reader {
	return reader{wrap(fdb.Transaction{}), rt}
}

// wrap returns a transaction that only its owner ends.
func wrap(tr fdb.Transaction) *transaction {
	background := context.Background()
	return &transaction{tr: tr, ctx: background, open: background, release: func() {}}
}

type wrapped struct{ *transaction }

func (w wrapped) Commit() kv.Future[struct{}] {
	return kv.Ready(struct{}{}, ErrOwnerCommits)
}
