package deploy

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

// root is the root of the repository.
const root = "../.."

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

func read(t *testing.T, elements ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elements...))
	must(t, err)
	return text
}

// golden compares text with a file in testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must(t, os.WriteFile(path, []byte(text), 0o644))
	}

	if want := string(read(t, path)); text != want {
		t.Errorf(
			"%s has changed; if that is right, run go test -update in testenv/deploy. It is "+
				"now:\n%s",
			path,
			text,
		)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
