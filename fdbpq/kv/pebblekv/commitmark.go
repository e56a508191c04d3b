package pebblekv

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

// The commit mark: whether synced commits are still there, and nothing else
//
// In its newest log, and in its manifest, Pebble takes the first record that it cannot read for the
// end, because a crash leaves such an end. Damage looks the same, and would silently drop the
// newest commits, or whole tables.
//
// So each commit stores its number under a commit key, and the file SYNCED has two numbers: up to
// which commits are synced, and up to which of them are in tables. Open first reads the folder
// without changing it. It refuses the folder if one of these commits is not where the file says it
// is. The second number is for a manifest that has lost its end: the newest commits are still in
// the log then, but not the tables before them.
//
// Pebble replays whatever logs it finds, even logs of another history, which stay when a backup is
// copied over the folder. So each opening of a folder has an id of its own, which is part of the
// commit key and stands in SYNCED. Opening a store deletes the commit key of the opening before.
// Open refuses a folder with commit keys of two openings, or of one that SYNCED does not know. A
// backup is opened once, so from then on it is a history of its own.
//
// Logs of one history and tables of another can have all of these numbers, and commits between them
// are missing nevertheless. So the first commit of the logs that Pebble replays has to follow the
// tables.
//
// The first number is written before anybody learns that a commit is synced. It is not synced
// itself: a power cut may leave an older one, which is still true. The file is synced when the
// second number changes, and with a new id before the first commit that has it.

// commitKeys is the prefix of the commit keys. They sort behind all keys that the users of the
// store write or read.
const commitKeys = "\xff\xff/pqbridge/commits/"

const (
	// commitMarkMagic is how the file begins. Its last byte is the version of the format.
	commitMarkMagic = "pqsync\x00\x03"
	commitMarkSize  = len(commitMarkMagic) + 5*8 + 4

	commitMarkCategory vfs.DiskWriteCategory = "pebblekv-mark"
)

// commitNumbers are what the mark says.
type commitNumbers struct {
	newest   uint64 // number of the newest commit that is synced, 0 if there is none
	inTables uint64 // number of the newest commit that tables hold, 0 if there is none

	opening uint64 // id of the opening that wrote the mark, 0 if none was given
	before  uint64 // id of the opening before it, 0 if there is none
	first   uint64 // number of the first commit of this opening
}

func (n commitNumbers) encode() [commitMarkSize]byte {
	var file [commitMarkSize]byte
	b := append(file[:0], commitMarkMagic...)
	for _, number := range [...]uint64{n.newest, n.inTables, n.opening, n.before, n.first} {
		b = binary.LittleEndian.AppendUint64(b, number)
	}
	sum := crc32.Checksum(b, castagnoli)
	binary.LittleEndian.AppendUint32(b, sum)
	return file
}

func commitMarkPath(files vfs.FS, dir string) string { return files.PathJoin(dir, commitMarkName) }

// readCommitMark returns the numbers in the mark of a folder. They are zero if there is no readable
// mark: in a new store, and after some power cuts.
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

	number := func(i int) uint64 {
		return binary.LittleEndian.Uint64(file[len(commitMarkMagic)+8*i:])
	}
	n := commitNumbers{number(0), number(1), number(2), number(3), number(4)}
	if n.encode() != file {
		return commitNumbers{}, nil
	}

	return n, nil
}

// numberCommit adds the number of a commit to its batch.
func numberCommit(batch *pebble.Batch, opening, number uint64) {
	op := batch.SetDeferred(len(commitKeys)+8, 8)
	binary.BigEndian.PutUint64(op.Key[copy(op.Key, commitKeys):], opening)
	binary.BigEndian.PutUint64(op.Value, number)
	_ = op.Finish() // Without an index it never fails.
}

// foundCommits are what the commit keys of a store say.
type foundCommits struct {
	newest, inTables uint64   // as in commitNumbers
	openings         []uint64 // which have a commit key, a single one if any
	tablesOf         []uint64 // those that have it in tables
}

// findCommits reads the commit keys of a store.
func findCommits(db *pebble.DB) (f foundCommits, err error) {
	if f.newest, f.openings, err = newestCommit(db, false); err == nil {
		f.inTables, f.tablesOf, err = newestCommit(db, true)
	}
	return f, err
}

// newestCommit returns the number of the newest commit in a store, or only in its tables. It is 0
// if there is none.
func newestCommit(db *pebble.DB, inTables bool) (number uint64, openings []uint64, err error) {
	bound := []byte(commitKeys)
	o := &pebble.IterOptions{LowerBound: bound, OnlyReadGuaranteedDurable: inTables}
	iter, err := db.NewIter(o)
	if err != nil {
		return 0, nil, err
	}

	for valid := iter.First(); valid; valid = iter.Next() {
		id, value := bytes.TrimPrefix(iter.Key(), bound), iter.Value()
		if len(id) == 8 && len(value) == 8 {
			openings = append(openings, binary.BigEndian.Uint64(id))
			number = max(number, binary.BigEndian.Uint64(value))
		}
	}

	return number, openings, iter.Close() // It returns what went wrong in between.
}

// checkCommits returns the numbers in the mark of the folder, and notes in replayed which logs it
// has. The error wraps errDamaged if one of these commits has vanished, and errMixed if there are
// commits of another history.
func checkCommits(
	dir string, o Options, lock *pebble.Lock, replayed *replayedLogs,
) (marked commitNumbers, err error) {
	marked, err = readCommitMark(o.FS, dir)
	if err == nil && marked == (commitNumbers{}) {
		err = replayed.addAll(dir)
	}
	if err != nil || marked == (commitNumbers{}) {
		return marked, err
	}

	look := o
	look.FS = replayed
	pdb, err := pebble.Open(dir, look.readOnly(lock))
	if err != nil {
		return marked, explainMisfit(err)
	}

	found, err := findCommits(pdb)
	_ = pdb.Close() // Nothing was written.
	if err != nil && passing(err) {
		return marked, err
	}
	if err != nil {
		return marked, nil // A table is damaged, but the rest of the store can be used.
	}

	if !marked.knows(found) {
		return marked, fmt.Errorf("%w: some have commits that the file %s does not know%s",
			errMixed, commitMarkPath(o.FS, dir), restoreMixed)
	}
	// The tables of an opening may be without the key of the one before.
	inTables := max(found.inTables+1, marked.first) - 1
	if first := replayed.firstCommit(); first > inTables+1 {
		return marked, fmt.Errorf("%w: tables have the commits up to number %d, logs "+
			"those from number %d on%s", errMixed, inTables, first, restoreMixed)
	}

	return marked, explainVanished(found, marked, commitMarkPath(o.FS, dir))
}

// replayedLogs is a file system that notes which logs Pebble opens.
type replayedLogs struct {
	vfs.FS
	paths []string
}

func (r *replayedLogs) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if isLog(name) {
		r.paths = append(r.paths, name)
	}
	return r.FS.Open(name, opts...)
}

func (r *replayedLogs) Unwrap() vfs.FS { return r.FS }

// addAll notes all logs of a folder. Pebble may not open some of them.
func (r *replayedLogs) addAll(dir string) error {
	names, err := r.List(dir)
	for _, name := range names {
		if isLog(name) {
			r.paths = append(r.paths, r.PathJoin(dir, name))
		}
	}
	return err
}

func (r *replayedLogs) logs() wal.Logs {
	var all wal.FileAccumulator
	for _, path := range r.paths {
		_, _ = all.MaybeAccumulate(r.FS, path)
	}
	return all.Finish()
}

// fileSize returns how many bytes the files of the logs have. A file that is used again keeps the
// size it had.
func (r *replayedLogs) fileSize() (bytes uint64) {
	for _, log := range r.logs() {
		size, _ := log.PhysicalSize() // Pebble's Open will fail.
		bytes += size
	}
	return bytes
}

// size returns how many bytes the logs hold. It reads them.
func (r *replayedLogs) size() (bytes uint64) {
	for _, log := range r.logs() {
		var end wal.Offset
		records := log.OpenForRead()
		for err := error(nil); err == nil; {
			_, end, err = records.NextRecord()
		}
		_ = records.Close() // Nothing was written.
		bytes += uint64(end.Physical)
	}
	return bytes
}

// firstCommit returns the number of the first commit in the logs, 0 if there is none that can be
// read.
func (r *replayedLogs) firstCommit() uint64 {
	for _, log := range r.logs() {
		records := log.OpenForRead()
		first, _, err := records.NextRecord()
		var batch []byte
		if err == nil {
			batch, _ = io.ReadAll(first)
		}
		_ = records.Close() // Nothing was written.

		if number := commitOf(batch); number > 0 {
			return number
		}
	}

	return 0
}

// commitOf returns the number that numberCommit gave a batch, 0 if it has none.
func commitOf(batch []byte) uint64 {
	if len(batch) < batchrepr.HeaderLen {
		return 0
	}
	for ops := batchrepr.Read(batch); ; {
		kind, key, value, ok, err := ops.Next()
		if !ok || err != nil {
			return 0
		}
		if kind == pebble.InternalKeyKindSet && bytes.HasPrefix(key, []byte(commitKeys)) &&
			len(value) == 8 {
			return binary.BigEndian.Uint64(value)
		}
	}
}

// knows reports whether all commits found are of the history of the mark.
func (n commitNumbers) knows(found foundCommits) bool {
	// What tables have of earlier openings is older. The log of this opening, copied over another,
	// hides their commit keys.
	if found.inTables >= max(n.first, 1) && !slices.Contains(found.tablesOf, n.opening) {
		return false
	}

	switch len(found.openings) {
	case 0:
		return true // Those that are missing have vanished.
	case 1:
		// A crash may have come before the first commit of the opening.
		only := found.openings[0]
		return only == n.opening || only == n.before && found.newest < n.first
	default:
		return false
	}
}

// explainVanished returns an error wrapping errDamaged if a commit that the mark knows was not
// found. The error says what to do.
func explainVanished(found foundCommits, marked commitNumbers, mark string) error {
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

// openCommitMark opens the mark of a folder, and writes and syncs n. If that fails, there is no
// mark.
func openCommitMark(files vfs.FS, dir string, n commitNumbers, logger *slog.Logger) *commitMark {
	m, path := &commitMark{logger: logger, numbers: n}, commitMarkPath(files, dir)
	f, err := files.OpenReadWrite(path, commitMarkCategory)
	if err == nil {
		m.file = f
		m.setInTables(n.newest, n.inTables)
	} else {
		m.giveUp(err)
	}

	if m.file == nil {
		_ = files.Remove(path) // It may know an opening that never had a commit.
	}
	return m
}

// setNewest is called after each sync of a commit.
func (m *commitMark) setNewest(number uint64) {
	m.numbers.newest = number
	m.write()
}

// setInTables is called after a flush. It may take its time.
func (m *commitMark) setInTables(newest, inTables uint64) {
	m.numbers.newest, m.numbers.inTables = newest, inTables
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
