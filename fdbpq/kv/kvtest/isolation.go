package kvtest

import "github.com/pqbridge/pqbridge/fdbpq/kv"

var isolationTests = []test{
	{"TransactionSeesOneState", func(f *fixture) {
		f.put("0", "a", "b")
		tx := f.begin()
		f.wantGet(tx, "a", "0")
		if f.db.Traits().Serial {
			return // nobody can write until it ends
		}
		f.put("1", "a", "b", "c")
		f.wantGet(tx, "b", "0")
		f.wantGet(tx, "c", absent)
		f.wantAllLimits(tx, "a=0", "b=0")
		f.wantAllLimits(tx.Snapshot(), "a=0", "b=0")
	}},
	{"ReadTransactionSeesOneState", func(f *fixture) {
		f.put("0", "a", "b")
		tx := f.beginRead()
		f.wantGet(tx, "a", "0")
		f.put("1", "a", "b", "c")
		f.write(func(tx kv.Transaction) { tx.Clear(f.key("a")) })
		f.wantGet(tx, "b", "0")
		f.wantGet(tx, "c", absent)
		f.wantAllLimits(tx, "a=0", "b=0")
		f.wantAllLimits(f.beginRead(), "b=1", "c=1")
	}},
	{"BeginSeesWhatWasCommitted", func(f *fixture) {
		for _, value := range []string{"1", "2", "3", "4", "5"} {
			f.put(value, "a")
			f.wantGet(f.beginRead(), "a", value)
			tx := f.begin()
			f.wantGet(tx, "a", value)
			tx.Cancel()
		}
	}},
	{"ReadTransactionWaitsForNoWriter", func(f *fixture) {
		f.put("0", "a")
		writer := f.begin()
		writer.Set(f.key("a"), []byte("1"))
		f.wantGet(f.beginRead(), "a", "0")
		await(f, writer.Commit())
		f.wantGet(f.beginRead(), "a", "1")
	}},
	{"CommittedBeforeBeginIsNoConflict", func(f *fixture) {
		f.put("0", "a")
		f.put("1", "a")
		tx := f.begin()
		f.wantGet(tx, "a", "1")
		tx.Set(f.key("a"), []byte("2"))
		await(f, tx.Commit())
		f.wantStored("a", "2")
	}},
	{"CancelledIsNoConflict", func(f *fixture) {
		if f.db.Traits().Serial {
			return // the other one could not begin
		}
		f.put("0", "a")
		tx := f.begin()
		f.wantGet(tx, "a", "0")
		other := f.begin()
		other.Set(f.key("a"), []byte("1"))
		other.Cancel()
		tx.Set(f.key("b"), []byte("1"))
		await(f, tx.Commit())
	}},
	{"ConflictedIsNoConflict", func(f *fixture) {
		if f.db.Traits().Serial {
			return
		}
		f.put("0", "a", "b")
		third, second := f.begin(), f.begin()
		f.wantGet(third, "b", "0")
		f.wantGet(second, "a", "0")
		f.put("1", "a")
		second.Set(f.key("b"), []byte("1"))
		f.wantCommitFails(second, kv.ErrConflict)
		third.Set(f.key("c"), []byte("1"))
		await(f, third.Commit())
		f.wantStored("b", "0")
	}},
	{"ReadOnlyCommitsWithoutConflict", func(f *fixture) {
		f.put("0", "a")
		tx := f.begin()
		f.wantGet(tx, "a", "0")
		await(f, tx.GetRange(f.all(), kv.RangeOptions{}))
		tx.AddReadConflict(f.all())
		if !f.db.Traits().Serial {
			f.put("1", "a")
		}
		await(f, tx.Commit())
	}},
	{"WriteConflictAloneIsAWrite", func(f *fixture) {
		if f.db.Traits().Serial {
			return
		}
		f.put("0", "a")
		tx := f.begin()
		f.wantGet(tx, "a", "0")
		f.put("1", "a")
		tx.AddWriteConflict(f.span("b", "c"))
		f.wantCommitFails(tx, kv.ErrConflict)
	}},
	{"WriteConflictChangesNothing", func(f *fixture) {
		f.put("0", "a")
		f.write(func(tx kv.Transaction) {
			tx.AddWriteConflict(f.all())
			f.wantAllLimits(tx, "a=0")
		})
		f.wantAllLimits(f.beginRead(), "a=0")
	}},
	{"BlindTransaction", func(f *fixture) {
		options := kv.BeginOptions{Blind: true}
		f.put("0", "a", "b")
		tx := f.beginWith(f.ctx, options)
		f.wantGet(tx, "a", "0")
		f.wantAllLimits(tx.Snapshot(), "a=0", "b=0")
		tx.Set(f.key("a"), []byte("1"))
		tx.Clear(f.key("b"))
		tx.Add(f.key("c"), 1)
		tx.AddReadConflict(f.span("d", "e"))
		await(f, tx.Commit())
		f.wantAllLimits(f.beginRead(), "a=1", "c="+number(1))
		if f.db.Traits().Serial {
			return
		}
		tx = f.beginWith(f.ctx, options)
		f.wantGet(tx, "a", "1")
		tx.Set(f.key("b"), []byte("2"))
		f.put("2", "a")
		f.wantCommitFails(tx, kv.ErrConflict)
	}},
	{"ShrinkingTransaction", func(f *fixture) {
		options := kv.BeginOptions{Shrinks: true}
		f.put("0", "a", "b")
		tx := f.beginWith(f.ctx, options)
		tx.Clear(f.key("a"))
		tx.Set(f.key("c"), []byte("1"))
		f.wantAllLimits(tx, "b=0", "c=1")
		await(f, tx.Commit())
		f.wantAllLimits(f.beginRead(), "b=0", "c=1")
		if f.db.Traits().Serial {
			return
		}
		tx = f.beginWith(f.ctx, options)
		f.wantGet(tx, "b", "0")
		tx.Clear(f.key("c"))
		f.put("2", "b")
		f.wantCommitFails(tx, kv.ErrConflict)
	}},
	{"EmptyTransactionCommits", func(f *fixture) {
		await(f, f.begin().Commit())
	}},
	{"Pipelines", func(f *fixture) {
		if !f.db.Traits().Pipelines {
			return
		}
		f.put(number(0), "n")
		var commits []kv.Future[struct{}]
		for i := range int64(10) {
			tx := f.begin()
			f.wantGet(tx, "n", number(i))
			tx.Set(f.key("n"), []byte(number(i+1)))
			commits = append(commits, tx.Commit())
		}
		reader := f.begin()
		f.wantGet(reader, "n", number(10))
		await(f, reader.Commit())
		// The reader's success said that all it had read is durable.
		f.wantStored("n", number(10))
		for _, commit := range commits {
			await(f, commit)
		}
	}},
}
