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

// The script reads no property of an element whose name a control has: a form would return that
// control. It uses the id of its own records, and filters arrays.
func TestNoPropertyIsAControl(t *testing.T) {
	allowed := regexp.MustCompile(`(series|held)\.id\b|\.filter\(`)
	script := allowed.ReplaceAllString(asset(t, "app.js"), "")
	templates, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		t.Fatal(err)
	}

	names, named := map[string]bool{}, regexp.MustCompile(` name="(\w+)"`)
	for _, file := range templates {
		text, err := files.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
	}

	for name := range names {
		if used := regexp.MustCompile(`\.` + name + `\b.*`).FindString(script); used != "" {
			t.Errorf("a control is named %s, and the script has %s: want getAttribute", name, used)
		}
	}
	if len(names) < 10 {
		t.Errorf("found %d names: does the test still see the controls?", len(names))
	}
}
