package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

const root = "../.."

// readFile returns the text of a file below root.
func readFile(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	must(t, err)
	return string(text)
}

// The table in docs/configuration.md has the variables, row by row.
func TestDocumentsListTheConfiguration(t *testing.T) {
	text := readFile(t, "docs", "configuration.md")
	var want []string

	for _, v := range variables() {
		byDefault := v.text()
		if byDefault != "" {
			byDefault = "`" + byDefault + "`"
		}

		want = append(want, fmt.Sprintf("| `%s` | %s | %s |", v.name, byDefault, v.description))
	}

	rows := regexp.MustCompile("(?m)^\\| `PQ_.*$").FindAllString(text, -1)
	if !slices.Equal(rows, want) {
		t.Errorf("the table in docs/configuration.md should be:\n%s", strings.Join(want, "\n"))
	}
}

// Every file that a document names as code exists, if the name has an ending that files of the
// project have; names may be patterns. Every path that begins with "./" is below the root, or the
// document links to it, or makes it.
func TestDocumentsNameRealFiles(t *testing.T) {
	files := testenv.Files(t, root)
	name := regexp.MustCompile(
		"`([A-Za-z0-9_.*/-]+\\.(?:go|mod|md|ya?ml|json|sh|py|js|rs|service))`")
	path := regexp.MustCompile(`(?:^|[^A-Za-z0-9_./-])\./([A-Za-z0-9_][A-Za-z0-9_./-]*)`)
	made := regexp.MustCompile(`^(bin|data|dist|fdb\.cluster)(/|$)`)
	named := 0

	for document, text := range testenv.Documents(t, root) {
		for _, m := range path.FindAllStringSubmatch(text, -1) {
			name := strings.TrimRight(m[1], "./")
			_, err := os.Stat(filepath.Join(root, name))
			if err != nil && !made.MatchString(name) && !strings.Contains(text, "/"+name+")") {
				t.Errorf("%s: there is no ./%s, and the document does not say where it is",
					document, name)
			}
		}
		for _, m := range name.FindAllStringSubmatch(text, -1) {
			named++
			end := regexp.MustCompile(
				"/" + strings.ReplaceAll(regexp.QuoteMeta(m[1]), `\*`, "[a-z_]*") + "$")
			if !slices.ContainsFunc(files, end.MatchString) {
				t.Errorf("%s: there is no file %s", document, m[1])
			}
		}
	}
	if named < 50 {
		t.Errorf("the documents name %d files only: does the test still see them?", named)
	}
}

// The archives of a release have the files that their README links to.
func TestArchivesHaveWhatTheirReadmeLinks(t *testing.T) {
	recipe := readFile(t, "Makefile")
	copied := regexp.MustCompile(`DIST_TEXTS = .*\|\| find (.*) -type f;`).
		FindStringSubmatch(recipe)
	if copied == nil {
		t.Fatal("make dist copies nothing")
	}

	kept := strings.Fields(copied[1])

	links := regexp.MustCompile(`\]\(([^):#]+)(#[^)]*)?\)`).
		FindAllStringSubmatch(readFile(t, "README.md"), -1)
	if len(links) < 10 {
		t.Errorf("%d links: does the test still see them?", len(links))
	}

	for _, link := range links {
		top, _, _ := strings.Cut(link[1], "/")
		has := func(pattern string) bool { ok, _ := filepath.Match(pattern, top); return ok }
		if !slices.ContainsFunc(kept, has) {
			t.Errorf("the archives do not have %s", link[1])
		}
	}
}

// The packages, the chart and the protocol have the version of the newest section of the changelog.
// A release takes its tag only if that is its version too.
func TestOneVersion(t *testing.T) {
	newest := regexp.MustCompile(`(?m)^## \[(.+?)\]`)
	version := newest.FindStringSubmatch(readFile(t, "CHANGELOG.md"))[1]

	for _, has := range [][2]string{
		{"deploy/helm/pqbridge/Chart.yaml", "\nversion: VERSION\n"},
		{"deploy/helm/pqbridge/Chart.yaml", "\nappVersion: \"VERSION\"\n"},
		{"client/javascript/package.json", "\n  \"version\": \"VERSION\",\n"},
		{"client/javascript/package-lock.json", "\n  \"version\": \"VERSION\",\n"},
		{"client/python/src/pqbridge/__init__.py", "\n__version__ = \"VERSION\"\n"},
		{"client/java/pom.xml", "\n  <version>VERSION</version>\n"},
		{"docs/java.md", "\n  <version>VERSION</version>\n"},
		{"client/pqotel/go.mod", "/pqbridge vVERSION\n"},
		{"docs/protocol.md", "the protocol of pqbridge VERSION."},
		{"docs/javascript.md", "pqbridge-client-VERSION.tgz"},
	} {
		want := strings.Replace(has[1], "VERSION", version, 1)
		if !strings.Contains(readFile(t, has[0]), want) {
			t.Errorf("%s does not have %q", has[0], want)
		}
	}

	// Only releases can be fetched.
	fetched := regexp.MustCompile(`go (?:install|get|run) [\w./]*/pqbridge[\w/]*@([\w.]*\w)`)
	found := 0
	for file, text := range testenv.Documents(t, root) {
		for _, m := range fetched.FindAllStringSubmatch(text, -1) {
			if found++; m[1] != "v"+version {
				t.Errorf("%s: %s: want v%s", file, m[0], version)
			}
		}
	}
	if found == 0 {
		t.Error("no document fetches a release with go: does the test still see it?")
	}
}

// Each test that the table of promises in docs/reliability.md names exists.
func TestPromisesHaveTests(t *testing.T) {
	_, table, _ := strings.Cut(readFile(t, "docs", "reliability.md"),
		"\n## Promises and their tests\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var names []string // of files, and of functions

	for _, file := range testenv.Files(t, root) {
		if strings.HasSuffix(file, "_test.go") {
			names = append(names, filepath.Base(file))
			text := readFile(t, file[len(root):])

			for _, m := range testFunction.FindAllStringSubmatch(text, -1) {
				names = append(names, m[1])
			}
		}
	}

	named := regexp.MustCompile("`(Test\\w+|[\\w*]+test\\.go)`").FindAllStringSubmatch(table, -1)
	for _, m := range named {
		exists := func(name string) bool {
			ok, err := filepath.Match(m[1], name)
			return ok && err == nil
		}
		if !slices.ContainsFunc(names, exists) {
			t.Errorf("there is no test %s", m[1])
		}
	}
	if len(named) < 20 {
		t.Errorf("the table names %d tests only: does the test still see them?", len(named))
	}
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)

// What documents and workflows say to make is in the Makefile, and that they name what it lists.
func TestDocumentsNameRealTargets(t *testing.T) {
	texts := testenv.Documents(t, root)
	delete(texts, root+"/CHANGELOG.md") // names what there was

	for _, file := range testenv.Files(t, filepath.Join(root, ".github")) {
		texts[file] = readFile(t, file[len(root):])
	}

	// Whether a document names it.
	targets := map[string]bool{"help": true, "clean": true, "fmt": true}
	rule := regexp.MustCompile(`(?m)^([a-z-]+):(.*)$`)

	for _, m := range rule.FindAllStringSubmatch(readFile(t, "Makefile"), -1) {
		targets[m[1]] = targets[m[1]] || !strings.Contains(m[2], " ## ")
	}

	command := regexp.MustCompile("(?m)(?:`|^ *|run: )make ([a-z][a-z-]*)")
	for file, text := range texts {
		for _, m := range command.FindAllStringSubmatch(text, -1) {
			if _, exists := targets[m[1]]; !exists {
				t.Errorf("%s: the Makefile has no target %s", file, m[1])
			}
			targets[m[1]] = true
		}
	}

	for target, named := range targets {
		if !named {
			t.Errorf("no document names make %s", target)
		}
	}
}

// The table of targets in CONTRIBUTING.md gives variables the defaults that the Makefile has.
func TestContributingKnowsDefaults(t *testing.T) {
	_, table, _ := strings.Cut(readFile(t, "CONTRIBUTING.md"), "\n| target |")
	table, _, _ = strings.Cut(table, "\n\n")
	defaults := map[string]string{}
	set := regexp.MustCompile(`(?m)^([A-Z]+) *:= (\S+)$`)

	for _, m := range set.FindAllStringSubmatch(readFile(t, "Makefile"), -1) {
		defaults[m[1]] = m[2]
	}

	named := 0
	given := regexp.MustCompile("`([A-Z]+)=(\\w+)`")

	for _, m := range given.FindAllStringSubmatch(table, -1) {
		value, known := defaults[m[1]]
		if !known { // it has none
			continue
		}

		named++
		if m[2] != value {
			t.Errorf("CONTRIBUTING.md has %s, and the default is %s", m[0], value)
		}
	}
	if named < 2 {
		t.Errorf("%d defaults: does the test still see them?", named)
	}
}

// linkTargets matches [name]: target, to which [text][name] leads.
var linkTargets = regexp.MustCompile(`(?m)^\[([^\]]+)\]: (\S+)$`)

// Every link of a document to a file, a folder or a heading of the project leads there.
func TestDocumentsLinkToRealFiles(t *testing.T) {
	texts := testenv.Documents(t, root)
	names := map[string][]string{}

	for document, text := range texts {
		names[document] = headings(text)
	}

	code := regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	links := 0

	for document, text := range texts {
		text = code.ReplaceAllString(text, "")
		found := append(markdownLinks.FindAllStringSubmatch(text, -1),
			linkTargets.FindAllStringSubmatch(text, -1)...)

		for _, m := range found {
			path, heading, _ := strings.Cut(m[2], "#")
			if m[2] == "" || strings.Contains(path, "://") { // one of linkTargets, or elsewhere
				continue
			}

			links++
			target := document

			if path != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(document), path))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", document, m[2])
			} else if heading != "" && !slices.Contains(names[target], heading) {
				t.Errorf("%s links to %s, and there is no such heading", document, m[2])
			}
		}
	}
	if links < 200 {
		t.Errorf("the documents have %d links only: does the test still see them?", links)
	}
}

// Every address of a file in this repository on GitHub, and every path of a page from the root,
// leads to a file, and to one of its headings: in documents, code, alert rules, the chart and the
// packages.
func TestEverythingNamesRealPages(t *testing.T) {
	name := regexp.MustCompile(`(?:` +
		`https://github\.com/pqbridge/pqbridge/(?:blob|tree|raw)/main/([\w./-]*\w)|` +
		`https://raw\.githubusercontent\.com/pqbridge/pqbridge/main/([\w./-]*\w)|` +
		`(?:^|[^\w/.*-])(docs/[\w/.-]*\.md))(?:#([\w-]+))?`)
	named := map[string]int{} // by the extension of the file that names it

	for _, file := range testenv.Files(t, root) {
		for line := range strings.Lines(readFile(t, file[len(root):])) {
			if !strings.Contains(line, "docs/") && !strings.Contains(line, "/main/") {
				continue // most lines: the expression is slow
			}

			for _, m := range name.FindAllStringSubmatch(line, -1) {
				named[filepath.Ext(file)]++
				path, heading := m[1]+m[2]+m[3], m[4]

				if _, err := os.Stat(filepath.Join(root, path)); err != nil {
					t.Errorf("%s names %s, which is not there", file, path)
					continue
				}
				if heading != "" && !slices.Contains(headings(readFile(t, path)), heading) {
					t.Errorf("%s names %s#%s, and there is no such heading", file, path, heading)
				}
			}
		}
	}
	for _, kind := range []string{".go", ".yaml", ".md", ".toml", ""} {
		if named[kind] == 0 {
			t.Errorf("no file %q names a page: does the test still see them? %v", kind, named)
		}
	}
}

// The index of decisions has a line for each page, in their order, with the date of its title.
func TestIndexOfDecisions(t *testing.T) {
	var want, got []string
	title := regexp.MustCompile(`^# (\d{4}-\d\d-\d\d): `)

	for _, file := range testenv.Files(t, filepath.Join(root, "docs", "decisions")) {
		page := filepath.Base(file)
		if page == "README.md" {
			continue
		}

		date := title.FindStringSubmatch(readFile(t, "docs", "decisions", page))
		if date == nil {
			t.Errorf("%s: the title has no date", page)
			continue
		}
		want = append(want, date[1]+" "+page)
	}

	line := regexp.MustCompile(`(?m)^- (\S+): \[.+\]\((.+)\)$`)
	index := readFile(t, "docs", "decisions", "README.md")

	for _, m := range line.FindAllStringSubmatch(index, -1) {
		got = append(got, m[1]+" "+m[2])
	}
	if !slices.Equal(got, want) {
		t.Errorf("the index has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The protocol begins with a table of all requests.
func TestProtocolBeginsWithItsRequests(t *testing.T) {
	_, table, _ := strings.Cut(readFile(t, "docs", "protocol.md"), "\n## Requests\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var got, want []string

	row := regexp.MustCompile("`([a-z-]+)` \\| `([a-z.*]+)`")
	for _, m := range row.FindAllStringSubmatch(table, -1) {
		got = append(got, m[1]+" "+m[2])
	}

	grammar, err := subjects.New("pq", "q")
	must(t, err)
	for _, e := range grammar.Endpoints() {
		want = append(want, e.Name+" "+e.Subject)
	}

	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the table has %q, want %q", got, want)
	}
}

// A payload may have as many bytes as the table of sizes in docs/protocol.md says.
func TestProtocolHasTheSizesOfPayloads(t *testing.T) {
	text := readFile(t, "docs", "protocol.md")
	_, table, _ := strings.Cut(text, "  | request | bytes | room for |\n")
	table, after, _ := strings.Cut(table, "\n\n")
	documented := map[string]string{}
	for _, row := range strings.Split(table, "\n")[1:] {
		cells := strings.Split(row, "|")
		for name := range strings.SplitSeq(cells[1], ",") {
			documented[strings.Trim(name, " `")] = strings.Trim(cells[2], " ")
		}
	}

	thousands := func(bytes int) string { return fmt.Sprintf("%d,%03d", bytes/1000, bytes%1000) }
	grammar, err := subjects.New("pq", "q")
	must(t, err)
	for _, e := range grammar.Endpoints() {
		most, group := e.Verb.MostPayload(), strings.TrimPrefix(e.Name, "fifo-")
		switch {
		case most == 0 || most > 1<<30: // takes none, or only max_payload bounds it
			continue
		case e.Verb == subjects.Pop || e.Verb == subjects.PopMax:
			group = "pops"
		case e.Verb == subjects.Peek || e.Verb == subjects.PeekMax:
			group = "peeks"
		}

		if documented[group] != thousands(most) {
			t.Errorf("%s: the table has %q, want %s", e.Name, documented[group], thousands(most))
		}
	}

	ack := fmt.Sprintf("`+ACK` and `+NXT` have at most %s bytes", // has a list of as many tokens
		thousands(subjects.Get.MostPayload()))
	if !strings.Contains(after, ack) {
		t.Errorf("behind the table there is no %q", ack)
	}
}

// What looks like a table of a document is one: each row has a line of its own, and as many cells
// as its header.
func TestTablesAreTables(t *testing.T) {
	code := regexp.MustCompile("(?s)```.*?```")
	delimiter := regexp.MustCompile(`^\|(-+\|)+$`)
	cells := func(line string) int { return strings.Count(strings.ReplaceAll(line, `\|`, ""), "|") }
	tables := 0

	for document, text := range testenv.Documents(t, root) {
		lines := strings.Split(code.ReplaceAllString(text, ""), "\n")
		for i := range lines {
			line := strings.TrimSpace(lines[i])
			if !strings.Contains(line, "|---") {
				continue
			}
			if !delimiter.MatchString(line) || i == 0 {
				t.Errorf("%s: this is no row of a table: %s", document, line)
				continue
			}

			tables++
			for _, row := range lines[i-1:] {
				if row = strings.TrimSpace(row); row == "" {
					break
				}
				if !strings.HasPrefix(row, "|") || cells(row) != cells(line) {
					t.Errorf("%s: this row has other cells than its table: %s", document, row)
				}
			}
		}
	}
	if tables < 100 {
		t.Errorf("the documents have %d tables only: does the test still see them?", tables)
	}
}

// headings returns the names by which links lead to the headings of a document.
func headings(text string) (names []string) {
	seen := map[string]int{}
	text = regexp.MustCompile("(?s)```.*?```").ReplaceAllString(text, "")

	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		name = strings.ReplaceAll(name, " ", "-")

		if n := seen[name]; n > 0 {
			names = append(names, fmt.Sprintf("%s-%d", name, n))
		} else {
			names = append(names, name)
		}

		seen[name]++
	}

	return names
}

// Every variable that a document mentions exists.
func TestDocumentsNameRealVariables(t *testing.T) {
	known := []string{
		// read by tests
		"PQ_TEST_FDB",
		"PQ_TEST_NPM",
		"PQ_TEST_CHROMIUM",
		"PQ_TEST_NATS_SERVER",
		"PQ_TEST_PEAK",
		"PQ_TEST_PEAK_MEMORY",
		"PQ_TEST_NIGHTLY",
		"PQ_TEST_BEFORE",
		"PQ_TEST_CLIENTS",
		"PQ_TEST_UPDATE",
		"PQ_TEST_VET",
		"PQ_SERVICE_HOST",
		"PQ_PORT_80_TCP", // set by Kubernetes
		// set by pq work
		"PQ_QUEUE",
		"PQ_ID",
		"PQ_PRIORITY",
		"PQ_GROUP",
		"PQ_JOINER",
		"PQ_JOINED",
		"PQ_DELIVERIES",
		"PQ_PUSHED_AT",
		"PQ_HEADER_",
		"PQ_HEADER_TRACE_ID",
		"PQ_DEAD_QUEUE",
		"PQ_DEAD_REASON",
		"PQ_DEAD_ERROR",
		"PQ_DEAD_DELIVERIES",
		"PQ_DEAD_AT",
		"PQ_PROGRESS_FD",
	}

	for _, v := range variables() {
		known = append(known, v.name)
	}

	for path, text := range testenv.Documents(t, root) {
		for _, name := range regexp.MustCompile(`\bPQ_[A-Z0-9_]+`).FindAllString(text, -1) {
			if !slices.Contains(known, name) {
				t.Errorf("%s: there is no variable %s", path, name)
			}
		}
	}
}
