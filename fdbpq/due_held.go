package fdbpq

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// dueHeld is a held item that has fallen due.
type dueHeld struct {
	dueRecord
	due *due
	id  ID
}

// returnHeld returns held items to their old places, until they take about room bytes. As
// returnItems, it reads few first.
func returnHeld(all []*dueHeld, room int) error {
	for next := firstReturn; len(all) > 0 && room > 0; next *= returnGrowth {
		some := all[:min(next, len(all))]
		all = all[len(some):]
		reads := make([]kv.Future[[]byte], len(some))
		for i, d := range some {
			reads[i] = d.due.ledger.tx.Get(d.key)
		}
		for i, d := range some {
			if room <= 0 {
				d.due.more = true
				continue
			}
			encoded, err := reads[i].Get()
			if err != nil {
				return err
			}
			room -= len(encoded) + restoreOverhead
			d.giveBack(encoded)
		}
	}
	for _, d := range all {
		d.due.more = true
	}
	return nil
}

// giveBack returns an item to its old place, if its record still says that it is due then.
func (d *dueHeld) giveBack(encoded []byte) {
	g := d.due.ledger
	if encoded == nil { // this transaction has settled it, or the entry has no key
		g.tx.Clear(d.entry)
		return
	}
	h, err := parseHeld(&d.id, encoded)
	if err != nil {
		d.due.err = err
		return
	}
	if !bytes.Equal(g.l.dueKey(h.due, d.key), d.entry) {
		g.tx.Clear(d.entry)
		return
	}
	g.release(h)
	g.putBack(h)
	d.due.returned = true
}

// catchUp brings back what is due in queues where more is due than one transaction with
// other operations brings back.
func (b *Batcher) catchUp(ctx context.Context, behind []*layout) error {
	now := b.now()
	for len(behind) > 0 {
		var err error
		behind, err = kv.TransactIdempotent(ctx, shrinking{b.db}, func(tx kv.Transaction) ([]*layout, error) {
			return catchUp(tx, behind, now)
		})
		if kv.MaybeCommitted(err) { // this transaction, not the batch
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("bringing back what is due: %w", err)
		}
	}
	return nil
}

// catchUp brings back what one transaction has room for, and returns the queues where more
// may be due.
func catchUp(tx kv.Transaction, queues []*layout, now time.Time) (behind []*layout, err error) {
	dues := make([]*due, len(queues))
	for i, l := range queues {
		dues[i] = &due{ledger: &ledger{tx: tx, l: l, now: now}, page: catchUpPage}
	}
	if err := bringBackUpTo(catchUpBytes, dues); err != nil {
		return nil, err
	}
	for _, d := range dues {
		d.ledger.flush()
		if d.behind() {
			behind = append(behind, d.ledger.l)
		}
	}
	return behind, nil
}
