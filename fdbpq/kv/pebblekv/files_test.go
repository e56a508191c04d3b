package pebblekv

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A folder with other files and no store is refused and left as it is; what a new file
// system has in it does not count.
func TestForeignFolder(t *testing.T) {
	for name, test := range map[string]struct {
		files   []string
		refused bool
	}{
		"other files":       {[]string{"notes.txt"}, true},
		"other logs":        {[]string{"server.log"}, true},
		"a new file system": {[]string{"lost+found", ".keep"}, false},
		"empty":             {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, file := range test.files {
				must(t, os.WriteFile(filepath.Join(dir, file), []byte("x"), 0o644))
			}
			must(t, os.Chmod(dir, 0o755))

			db, err := Open(dir, Options{})
			if (err != nil) != test.refused ||
				err != nil && !strings.Contains(err.Error(), "want an empty folder") {
				t.Fatalf("opened with %v", err)
			}

			if err == nil {
				mustClose(t, db)
				// A store may be joined by other files, which stay as they are.
				mustClose(t, openTestDir(t, dir, Options{}))
			}

			wantMode(t, dir, fs.FileMode(map[bool]uint32{true: 0o755, false: 0o700}[test.refused]))
			for _, file := range test.files {
				wantMode(t, filepath.Join(dir, file), 0o644)
			}
		})
	}
}

func wantMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode().Perm() != want {
		t.Errorf("%s has mode %v, want %v", path, info.Mode().Perm(), want)
	}
}

// A lock that is a link does not change the file that it leads to.
func TestLockThatIsALink(t *testing.T) {
	dir, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
	must(t, os.WriteFile(other, nil, 0o644))
	must(t, os.Symlink(other, filepath.Join(dir, "LOCK")))

	if db, err := Open(dir, Options{}); err == nil {
		defer func() { _ = db.Close() }()
	}
	wantMode(t, other, 0o644)
}
