package testenv

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Files returns the files below a folder, except for built and installed ones.
func Files(t testing.TB, root string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		made := []string{".git", "node_modules", "bin", "data", "dist"}
		if err == nil && entry.IsDir() && slices.Contains(made, entry.Name()) {
			return fs.SkipDir
		}
		if err == nil && !entry.IsDir() {
			files = append(files, filepath.ToSlash(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	return files
}

// Documents returns the Markdown files below a folder by their paths.
func Documents(t testing.TB, root string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, path := range Files(t, root) {
		if filepath.Ext(path) != ".md" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(text)
	}

	return texts
}
