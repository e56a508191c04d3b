package dashboard

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
)

func asset(t *testing.T, name string) string {
	t.Helper()
	data, err := files.ReadFile(path.Join("assets", name))
	if err != nil {
		t.Fatal(err)
	}

	return string(data)
}

// Vendored files are as VENDORED.md says, with their licences.
func TestVendored(t *testing.T) {
	table := asset(t, "VENDORED.md")
	entries, err := fs.ReadDir(files, "assets/vendor")
	if err != nil {
		t.Fatal(err)
	}

	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".LICENSE") {
			continue
		}

		line := fmt.Sprintf("(?m)^\\| `%s` .*`%x` \\|$", regexp.QuoteMeta(e.Name()),
			sha256.Sum256([]byte(asset(t, "vendor/"+e.Name()))))
		if !regexp.MustCompile(line).MatchString(table) {
			t.Errorf("VENDORED.md has no line %s", line)
		}
	}

	for _, licence := range []string{"htmx.LICENSE", "uPlot.LICENSE"} {
		if len(asset(t, "vendor/"+licence)) < 500 {
			t.Errorf("%s is no licence", licence)
		}
	}
}

// Nothing that the dashboard wrote itself needs more than its policy allows, or the network.
func TestPolicy(t *testing.T) {
	if m := regexp.MustCompile(`https?:|@import|url\(`).FindString(asset(t, "app.css")); m != "" {
		t.Errorf("app.css has %q", m)
	}

	_, rest, _ := strings.Cut(asset(t, "app.css"), "*, *::before") // after the colours
	m := regexp.MustCompile(`#[0-9a-f]{3,8}\b[^{]*;|rgb\((?:[^0]|0 [^0])`).FindString(rest)
	if m != "" {
		t.Errorf("a colour of its own: %s", m)
	}

	js := regexp.MustCompile(`(?m)//.*$`).ReplaceAllString(asset(t, "app.js"), "")
	refused := regexp.MustCompile(`https?:|\beval\b|new Function|document\.write|innerHTML|` +
		`outerHTML|insertAdjacentHTML`)
	if m := refused.FindString(js); m != "" {
		t.Errorf("app.js has %q", m)
	}
}
