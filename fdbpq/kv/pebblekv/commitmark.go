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
// Pebble takes the first record of its newest log, and of its manifest, that it cannot read for
// the end, because a crash leaves such an end. Damage looks the same, and would silently drop the
// newest commits, or whole tables.
//
// So each commit stores its number under commitKey, and the file SYNCED says up to which number
// commits are synced, and up to which of them tables have taken them over. Open reads the folder
// without changing it, and refuses it if one of these commits is not found where the file says it
// is. The second number is for a manifest that has lost its end: the newest commits are still in
// the log then, but not the tables before them.
//
// The first number is written before anybody learns that a commit is synced, and not synced
// itself: a power cut may leave an older one, which is true as well. The file is synced when the
// second number changes.

// commitKey is behind all keys that the users of the store write or read.
var commitKey = []byte("\xff\xff/pqbridge/commit")

const (
	// commitMarkMagic is how the file begins; its last byte is the version. Version 1 was a
	// position in a log.
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
	binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return file
}

func commitMarkPath(files vfs.FS, dir string) string { return files.PathJoin(dir, commitMarkName) }

// readCommitMark returns the numbers in the mark of a folder, or none if there is no
// readable mark: in a new store, in one of an earlier version, and after some power cuts.
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

// newestCommit returns the number of the newest commit in a store, or in its tables, 0 if
// there is none.
func newestCommit(db *pebble.DB, inTables bool) (number uint64, err error) {
	iter, err := db.NewIter(&pebble.IterOptions{LowerBound: commitKey, OnlyReadGuaranteedDurable: inTables})
	if err != nil {
		return 0, err
	}

	if iter.First() {
		if value := iter.Value(); len(value) == 8 {
			number = binary.BigEndian.Uint64(value)
		}
	}
	return number, iter.Close() // which returns what went wrong in between
}

// checkCommits returns the numbers in the mark of the folder, and an error wrapping
// errDamaged if one of these commits has vanished.
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
	switch {
	case err != nil && passing(err):
		return marked, err
	case err != nil:
		return marked, nil // A table is damaged, which does not keep the rest from being used.
	}
	return marked, explainVanished(found, marked, commitMarkPath(o.FS, dir))
}

// explainVanished returns an error wrapping errDamaged if a commit that the mark knows was
// not found. It says what to do.
func explainVanished(found, marked commitNumbers, mark string) error {
	switch {
	case found.newest < marked.newest:
		return fmt.Errorf("%w: the newest commit found is number %d, but commits up to number %d were synced; "+
			"the newest file *.log is damaged, cut off or missing: restore the folder from a backup, "+
			"or give up the commits that are missing and remove %s", errDamaged, found.newest, marked.newest, mark)
	case found.inTables < marked.inTables:
		return fmt.Errorf("%w: the newest commit in the tables is number %d, but tables had all up to number %d; "+
			"the list of the tables, a file %s, is damaged, cut off or an older one: "+
			"restore the folder from a backup, all of it and into an empty folder; "+
			"if there is none, see what is left in a copy of the folder, without the file %s",
			errDamaged, found.inTables, marked.inTables, "MANIFEST-*", mark)
	}
	return nil
}

// commitMark writes the mark. Without it commits are as safe, but less damage is noticed.
// So a failure here is not a failure of the disk. It belongs to the syncer.
type commitMark struct {
	file    vfs.File // nil if it cannot be written
	logger  *slog.Logger
	numbers commitNumbers
	buffer  [commitMarkSize]byte
}

// openCommitMark opens the mark of a folder, whose commits are synced up to these numbers.
func openCommitMark(files vfs.FS, dir string, found commitNumbers, logger *slog.Logger) *commitMark {
	m := &commitMark{logger: logger}
	f, err := files.OpenReadWrite(commitMarkPath(files, dir), commitMarkCategory)
	if err != nil {
		m.giveUp(err)
		return m
	}

	m.file = f
	m.setInTables(found)
	return m
}

// setNewest is called after each sync of a commit.
func (m *commitMark) setNewest(number uint64) {
	m.numbers.newest = number
	m.write()
}

// setInTables is called after a flush, which needs no speed.
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

// giveUp stops writing the mark. The old one stays, and stays true.
func (m *commitMark) giveUp(err error) {
	m.logger.Warn("pebblekv: cannot write the file that says which commits are synced; "+
		"the next start may not notice damage", "file", commitMarkName, "error", err)
	m.close()
}

func (m *commitMark) close() {
	if m.file != nil {
		_ = m.file.Close() // What counts was synced.
		m.file = nil
	}
}
