package pebblekv

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// lastBackupName is a file that is written when the store was backed up. Its time of modification
// counts, so that people and scripts can read it as well.
const (
	lastBackupName = "LAST-BACKUP"
	lastBackupText = "This file was last modified when the store was last backed up.\n"
)

// backupName is a file in each backup. Its last line, like the last line of LAST-BACKUP, is the id
// of the series: backups of the store in one folder have the same. A restored store has neither
// file, so its backups are another series.
const (
	backupName = "BACKUP"
	backupText = "This folder is a backup. Those of one store have the same last line here.\n"
)

// BackupSeries returns what the folder of a backup has in common with other backups of the same
// store, "" if it is no backup.
func BackupSeries(dir string) string {
	return seriesIn(vfs.Default, filepath.Join(dir, backupName))
}

// seriesIn returns the id of the series in a file, "" if it has none.
func seriesIn(files vfs.FS, path string) string {
	f, err := files.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()

	text, _ := io.ReadAll(io.LimitReader(f, 1<<10))
	lines := strings.Split(string(text), "\n")
	if len(lines) != 3 {
		return ""
	}
	return lines[1]
}

// writeSeries writes a file with the id of a series.
func writeSeries(files vfs.FS, path, text, series string) error {
	f, err := files.Create(path, "pqbridge-backup")
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(text + series + "\n"))
	return errors.Join(err, f.Sync(), f.Close())
}

// FreeSpace returns how many bytes of the disk are free for the store, also while it is
// unavailable. An error comes from the file system, which may not tell.
func (db *DB) FreeSpace() (uint64, error) {
	usage, err := db.options.FS.GetDiskUsage(db.dir)
	return usage.AvailBytes, err
}

// Size returns how many bytes the files of the store have, also while it is unavailable. An error
// comes from the file system.
func (db *DB) Size() (bytes int64, err error) {
	files := db.options.FS
	names, err := files.List(db.dir)
	for _, name := range names {
		info, err := files.Stat(files.PathJoin(db.dir, name))
		if err == nil && !info.IsDir() { // or it was removed meanwhile
			bytes += info.Size()
		}
	}
	return bytes, err
}

// LastBackup returns when Backup last copied the store in this folder, by whatever process; the
// zero time if it never did. The folder remembers it: a backup does not, nor a store restored from
// it.
func (db *DB) LastBackup() (at time.Time) {
	files := db.options.FS
	if info, err := files.Stat(files.PathJoin(db.dir, lastBackupName)); err == nil {
		at = info.ModTime()
	}
	return at
}

// noteBackup remembers that a backup was made. The backup is good even if that fails.
func (db *DB) noteBackup(series string) {
	files := db.options.FS
	err := writeSeries(files, files.PathJoin(db.dir, lastBackupName), lastBackupText, series)
	if err = errors.Join(err, syncFolder(files, db.dir)); err != nil {
		db.options.Logger.Warn("pebblekv: cannot write down when the last backup was made",
			"folder", db.dir, "error", err)
	}
}
