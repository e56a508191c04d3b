package kvtest

import "github.com/pqbridge/pqbridge/fdbpq/kv"

var futureTests = []test{
	// A future always gives the same result, and sees no write made after the call.
	{"AnswerTwiceAndIgnoreLaterWrites", func(f *fixture) {
		f.write(set("a", "1"))
		tx := f.begin()
		before, get := tx.Get(f.key("a")), tx.Get(f.key("a"))
		getRange := tx.GetRange(f.all(), kv.RangeOptions{})

		check := func() {
			if got := text(await(f, get)); got != "1" {
				f.Errorf("Get returned %q, want 1", got)
			}
			if got := f.pairs(await(f, getRange)); len(got) != 1 || got[0] != "a=1" {
				f.Errorf("GetRange returned %q, want a=1", got)
			}
		}

		check()
		tx.Set(f.key("a"), []byte("2"))
		if got := text(await(f, before)); got != "1" {
			f.Errorf("a Get made before the write returned %q, want 1", got)
		}

		check()

		commit := tx.Commit()
		await(f, commit)
		await(f, commit)
		check()
	}},
	// Results stay valid after the transaction, and after the store has changed or was closed.
	{"ResultsOutliveTheTransaction", func(f *fixture) {
		f.write(puts("0", "a", "b")...)
		tx, reader := f.begin(), f.beginRead()
		values := [][]byte{await(f, tx.Get(f.key("a"))), await(f, reader.Get(f.key("a")))}
		for _, r := range []kv.Reader{tx, reader} {
			for _, pair := range await(f, r.GetRange(f.all(), kv.RangeOptions{})) {
				values = append(values, pair.Value)
			}
		}

		reader.Cancel()
		tx.Cancel()
		f.write(puts("1", "a", "b")...)
		if f.engine.Persistent {
			f.reopen()
		}

		for i, value := range values {
			if text(value) != "0" {
				f.Errorf("result %d became %q, want 0", i, value)
			}
		}
	}},
	// A transaction that was not committed makes no other transaction conflict.
	{"ConflictedOrCancelledIsNoConflict", onlyIf(concurrent, func(f *fixture) {
		third, second, cancelled := f.begin(), f.begin(), f.begin()
		f.run(third, model{}, get("b"))
		f.run(second, model{}, get("a"), set("b", "1"))
		f.run(cancelled, model{}, set("b", "1"))
		cancelled.Cancel()

		f.write(set("a", "1"))
		f.wantCommitFails(second, kv.ErrConflict)
		f.run(third, model{}, set("c", "1"))
		await(f, third.Commit())
		f.wantPairs(f.beginRead(), model{"a": "1", "c": "1"})
	})},
	// A transaction that begins after Commit has returned sees the writes, synced or not.
	{"Pipelines", onlyIf(pipelines, func(f *fixture) {
		m := modelOf(set("n", number(0)))
		f.write(set("n", number(0)))
		var commits []kv.Future[struct{}]
		for i := range int64(10) {
			tx := f.begin()
			f.run(tx, m, get("n"), set("n", number(i+1)))
			commits = append(commits, tx.Commit())
		}

		// If the reader succeeds, everything that it has read is durable.
		reader := f.begin()
		f.run(reader, m, get("n"))
		await(f, reader.Commit())
		f.wantPairs(f.beginRead(), m)
		for _, commit := range commits {
			await(f, commit)
		}
	})},
}
