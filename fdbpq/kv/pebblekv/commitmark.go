package pebblekv

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// The commit mark: whether synced commits are still there
//
// In its newest log, and in its manifest, Pebble takes the first record that it cannot read for the
// end, because a crash leaves such an end. Damage looks the same, and would silently drop the
// newest commits, or whole tables.
//
// So each commit stores its number under commitKey, and the file SYNCED has two numbers: up to
// which commits are synced, and up to which of them are in tables. Open first reads the folder
// without changing it. It refuses the folder if one of these commits is not where the file says it
// is. The second number is for a manifest that has lost its end: the newest commits are still in
// the log then, but not the tables before them.
//
// The first number is written before anybody learns that a commit is synced. It is not synced
// itself: a power cut may leave an older one, which is still true. The file is synced when the
// second number changes.

// commitKey sorts behind all keys that the users of the store write or read.
var commitKey = []byte("\xff\xff/pqbridge/commit")

const (
	// commitMarkMagic is how the file begins. Its last byte is the version of the format; version 1
	// was a position in a log.
	commitMarkMagic = "pqsync\x00\x02"
	commitMarkSize  = len(commitMarkMagic) + 8 + 8 + 4

	commitMarkCategory vfs.DiskWriteCategory = "pebblekv-mark"
)

// commitNumbers are the numbers of two commits, 0 if there is none.
type commitNumbers struct {
	newest   uint64 // that is synced
	inTables uint64 // the newest that tables hold
}

func (n commitNumbers) encode() [commitMarkSize]byte {
	var file [commitMarkSize]byte
	b := append(file[:0], commitMarkMagic...)
	b = binary.LittleEndian.AppendUint64(b, n.newest)
	b = binary.LittleEndian.AppendUint64(b, n.inTables)
	sum := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	binary.LittleEndian.AppendUint32(b, sum)
	return file
}

func commitMarkPath(files vfs.FS, dir string) string { return files.PathJoin(dir, commitMarkName) }

// readCommitMark returns the numbers in the mark of a folder. They are zero if there is no readable
// mark: in a new store, in one of an earlier version, and after some power cuts.
func readCommitMark(files vfs.FS, dir string) (commitNumbers, error) {
	f, err := files.Open(commitMarkPath(files, dir))
	if err != nil {
		return commitNumbers{}, ignoreNotExist(err)
	}
	defer func() { _ = f.Close() }()

	var file [commitMarkSize]byte
	if _, err := f.ReadAt(file[:], 0); err != nil {
		return commitNumbers{}, nil // It was never written, or was cut off.
	}

	b := file[len(commitMarkMagic):]
	n := commitNumbers{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
	if n.encode() != file {
		return commitNumbers{}, nil
	}

	return n, nil
}

// numberCommit adds the number of a commit to its batch.
func numberCommit(batch *pebble.Batch, number uint64) {
	op := batch.SetDeferred(len(commitKey), 8)
	copy(op.Key, commitKey)
	binary.BigEndian.PutUint64(op.Value, number)
	_ = op.Finish() // Without an index it never fails.
}

// findCommits returns the numbers of the commits in a store.
func findCommits(db *pebble.DB) (n commitNumbers, err error) {
	if n.newest, err = newestCommit(db, false); err == nil {
		n.inTables, err = newestCommit(db, true)
	}
	return n, err
}

// newestCommit returns the number of the newest commit in a store, or only in its tables. It is 0
// if there is none.
func newestCommit(db *pebble.DB, inTables bool) (number uint64, err error) {
	o := &pebble.IterOptions{LowerBound: commitKey, OnlyReadGuaranteedDurable: inTables}
	iter, err := db.NewIter(o)
	if err != nil {
		return 0, err
	}

	if iter.First() {
		if value := iter.Value(); len(value) == 8 {
			number = binary.BigEndian.Uint64(value)
		}
	}

	return number, iter.Close() // It returns what went wrong in between.
}

// checkCommits returns the numbers in the mark of the folder. The error wraps errDamaged if one of
// these commits has vanished.
func checkCommits(dir string, o Options, lock *pebble.Lock) (marked commitNumbers, err error) {
	marked, err = readCommitMark(o.FS, dir)
	if err != nil || marked == (commitNumbers{}) {
		return marked, err
	}

	pdb, err := pebble.Open(dir, o.readOnly(lock))
	if err != nil {
		return marked, explainDamage(err)
	}

	found, err := findCommits(pdb)
	_ = pdb.Close() // Nothing was written.
	if err != nil && passing(err) {
		return marked, err
	}
	if err != nil {
		return marked, nil // A table is damaged, but the rest of the store can be used.
	}

	return marked, explainVanished(found, marked, commitMarkPath(o.FS, dir))
}

// explainVanished returns an error wrapping errDamaged if a commit that the mark knows was not
// found. The error says what to do.
func explainVanished(found, marked commitNumbers, mark string) error {
	if found.newest < marked.newest {
		return fmt.Errorf("%w: the newest commit found is number %d, but commits up to number %d "+
			"were synced; the newest file *.log is damaged, cut off or missing: restore the "+
			"folder from a backup, or give up the commits that are missing and remove %s",
			errDamaged, found.newest, marked.newest, mark)
	}
	if found.inTables < marked.inTables {
		return fmt.Errorf("%w: the newest commit in the tables is number %d, but tables had all "+
			"up to number %d; the list of the tables, a file MANIFEST-*, is damaged, cut off or "+
			"an older one: restore the folder from a backup, all of it and into an empty folder; "+
			"if there is none, see what is left in a copy of the folder, without the file %s",
			errDamaged, found.inTables, marked.inTables, mark)
	}

	return nil
}

// readOnly are Pebble's options for looking at a folder without changing it.
func (o Options) readOnly(lock *pebble.Lock) *pebble.Options {
	return &pebble.Options{
		FS:                 tableFS{o.FS},
		Lock:               lock,
		ReadOnly:           true,
		CacheSize:          minMemTableSize,
		MemTableSize:       uint64(o.MemTableSize),
		FormatMajorVersion: pebble.FormatValueSeparation,
		Logger:             pebbleLogger{o.Logger, func(error) {}}, // Open fails as well.
	}
}

// commitMark writes the mark. Commits are as safe without it, but less damage is noticed, so a
// failure here is not a failure of the disk. Only the syncer uses it.
type commitMark struct {
	file    vfs.File // nil if it cannot be written
	logger  *slog.Logger
	numbers commitNumbers
	buffer  [commitMarkSize]byte
}

// openCommitMark opens the mark of a folder. The commits up to n are synced.
func openCommitMark(files vfs.FS, dir string, n commitNumbers, logger *slog.Logger) *commitMark {
	m := &commitMark{logger: logger}
	f, err := files.OpenReadWrite(commitMarkPath(files, dir), commitMarkCategory)
	if err != nil {
		m.giveUp(err)
		return m
	}

	m.file = f
	m.setInTables(n)
	return m
}

// setNewest is called after each sync of a commit.
func (m *commitMark) setNewest(number uint64) {
	m.numbers.newest = number
	m.write()
}

// setInTables is called after a flush. It may take its time.
func (m *commitMark) setInTables(n commitNumbers) {
	m.numbers = n
	if m.write(); m.file != nil {
		if err := m.file.Sync(); err != nil {
			m.giveUp(err)
		}
	}
}

func (m *commitMark) write() {
	if m.file == nil {
		return
	}
	m.buffer = m.numbers.encode()
	if _, err := m.file.WriteAt(m.buffer[:], 0); err != nil {
		m.giveUp(err)
	}
}

// giveUp stops writing the mark. The old one stays, and remains true.
func (m *commitMark) giveUp(err error) {
	m.logger.Warn("pebblekv: cannot write the file that says which commits are synced; "+
		"the next start may not notice damage", "file", commitMarkName, "error", err)
	m.close()
}

func (m *commitMark) close() {
	if m.file != nil {
		_ = m.file.Close() // What matters was synced.
		m.file = nil
	}
}
