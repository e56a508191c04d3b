package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dockerfile has the instructions of the Dockerfile, each joined into one line.
type dockerfile []instruction

type instruction struct{ name, rest string }

func readDockerfile(t *testing.T) dockerfile {
	t.Helper()
	text := readFile(t, "Dockerfile")
	var d dockerfile
	joined := regexp.MustCompile(`(?m)^\s*#.*\n`).ReplaceAllString(text, "")
	joined = strings.ReplaceAll(joined, "\\\n", " ")
	for line := range strings.Lines(joined) {
		if name, rest, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			d = append(d, instruction{name, strings.TrimSpace(rest)})
		}
	}
	return d
}

// all returns the arguments of each instruction of that name.
func (d dockerfile) all(name string) []string {
	var found []string
	for _, i := range d {
		if i.name == name {
			found = append(found, i.rest)
		}
	}
	return found
}

// argument returns the default of an ARG, or "".
func (d dockerfile) argument(name string) string {
	for _, a := range d.all("ARG") {
		if value, ok := strings.CutPrefix(a, name+"="); ok {
			return value
		}
	}
	return ""
}

// run returns the first RUN instruction that contains text.
func (d dockerfile) run(t *testing.T, text string) string {
	t.Helper()
	all := d.all("RUN")
	i := slices.IndexFunc(all, func(r string) bool { return strings.Contains(r, text) })
	if i < 0 {
		t.Fatalf("no RUN with %q", text)
	}
	return all[i]
}

func TestDockerfilePinsWhatItFetches(t *testing.T) {
	d := readDockerfile(t)
	stages := []string{"scratch"}
	for _, from := range d.all("FROM") {
		image, stage, _ := strings.Cut(strings.TrimPrefix(from, "--platform=$BUILDPLATFORM "), " AS ")
		if name, ok := strings.CutPrefix(image, "${"); ok {
			image = d.argument(strings.TrimSuffix(name, "}"))
		}
		if !slices.Contains(stages, image) && !pinned.MatchString(image) {
			t.Errorf("FROM %s: %q is not pinned", from, image)
		}
		stages = append(stages, stage)
	}
	if !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(d.argument("FDB_VERSION")) {
		t.Errorf("FDB_VERSION is %q", d.argument("FDB_VERSION"))
	}
	for _, name := range []string{"FDB_CLIENT_SHA256_AMD64", "FDB_CLIENT_SHA256_ARM64"} {
		if sum := d.argument(name); !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(sum) {
			t.Errorf("%s is %q", name, sum)
		}
	}
	fetch := d.run(t, "foundationdb-clients_")
	checked, unpacked := strings.Index(fetch, "sha256sum -c"), strings.Index(fetch, "dpkg-deb -x")
	if checked < 0 || unpacked < checked || !strings.Contains(fetch, "set -e") {
		t.Errorf("the package is not checked before it is unpacked: %s", fetch)
	}
}

// TestDockerfileNamesTheMirror runs what fetches FoundationDB's package with a curl that reaches
// nobody.
func TestDockerfileNamesTheMirror(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no shell here")
	}
	folder := t.TempDir()
	for name, script := range map[string]string{"curl": "exit 6", "dpkg": "echo amd64", "sha256sum": "echo checked", "ldconfig": "exit 0"} {
		must(t, os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	}
	cmd := exec.Command(shell, "-c", readDockerfile(t).run(t, "foundationdb-clients_"))
	cmd.Env = []string{"PATH=" + folder, "FDB_WEBSITE=https://mirror.invalid/fdb", "FDB_VERSION=1.2.3", "FDB_CLIENT_SHA256_AMD64=0"}
	out, err := cmd.CombinedOutput()
	if err == nil || strings.Contains(string(out), "checked") {
		t.Errorf("%v: want it to end before it checks anything\n%s", err, out)
	}
	wantWords(t, string(out), "https://mirror.invalid/fdb", "--build-arg FDB_WEBSITE=")
}

// TestWorkflowTestsWhatTheImageHas: the suites on FoundationDB run with the packages of the image,
// and with pinned ones of the server.
func TestWorkflowTestsWhatTheImageHas(t *testing.T) {
	d := readDockerfile(t)
	text := readFile(t, ".github", "workflows", "ci.yml")
	for _, want := range []string{
		`FDB_VERSION: ` + regexp.QuoteMeta(d.argument("FDB_VERSION")) + `\n`,
		`arch: amd64\n +client: ` + d.argument("FDB_CLIENT_SHA256_AMD64") + `\n +server: [0-9a-f]{64}\n`,
		`arch: aarch64\n +client: ` + d.argument("FDB_CLIENT_SHA256_ARM64") + `\n +server: [0-9a-f]{64}\n`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no %q in ci.yml", want)
		}
	}
}

func TestDockerfileBuildsBothPrograms(t *testing.T) {
	builds := strings.Join(readDockerfile(t).all("RUN"), "\n")
	for _, pattern := range []string{
		`CGO_ENABLED=1 go build -trimpath -tags fdb[, ][^;]*-X main\.version=[^;]* \./cmd/pqbridge;`,
		`CGO_ENABLED=0 [^;]*go build -trimpath [^;]*-X main\.version=[^;]* \./cmd/pqbridge\n`,
		`CGO_ENABLED=0 [^;]*go build -trimpath [^;]*-X main\.version=[^;]* \./cmd/pq;`,
	} {
		if !regexp.MustCompile(pattern).MatchString(builds) {
			t.Errorf("no %s in %s", pattern, builds)
		}
	}
}

func TestDockerfileRunsWithoutShellOrRoot(t *testing.T) {
	d := readDockerfile(t)
	if user := d.all("USER"); len(user) != 1 || !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(user[0]) {
		t.Errorf("USER %v: want one, by number, that is not root", user)
	}
	list := func(text string) []string {
		var words []string
		if err := json.Unmarshal([]byte(text), &words); err != nil || len(words) == 0 {
			t.Errorf("%s needs a shell: %v", text, err)
			return []string{""}
		}
		return words
	}
	entrypoint := list(d.all("ENTRYPOINT")[0])
	_, check, _ := strings.Cut(d.all("HEALTHCHECK")[0], " CMD ")
	if want := []string{entrypoint[0], "-healthcheck"}; !slices.Equal(list(check), want) {
		t.Errorf("HEALTHCHECK %s: want %v", check, want)
	}
	forEachCompose(t, func(t *testing.T, file composeFile, _ []string) {
		for name, s := range file.ours() {
			if want := []string{"CMD", entrypoint[0], "-healthcheck"}; !slices.Equal(s.Healthcheck.Test, want) {
				t.Errorf("health check of %s is %v: want %v", name, s.Healthcheck.Test, want)
			}
		}
	})
}

func TestDockerfileConfigures(t *testing.T) {
	d := readDockerfile(t)
	for _, pair := range regexp.MustCompile(`(PQ_\w+)=(\S+)`).FindAllStringSubmatch(strings.Join(d.all("ENV"), " "), -1) {
		t.Setenv(pair[1], pair[2])
	}
	c, err := loadConfig(false)
	must(t, err)
	if volumes := d.all("VOLUME"); !slices.Contains(volumes, c.DataDir) {
		t.Errorf("VOLUME %v: want PQ_DATA_DIR %s", volumes, c.DataDir)
	}
	if ports := d.all("EXPOSE"); !strings.HasSuffix(c.HTTPAddr, ":"+ports[0]) {
		t.Errorf("EXPOSE %v: want the port of PQ_HTTP_ADDR %s", ports, c.HTTPAddr)
	}
}

// TestDockerfileCopiesWhatIsThere checks that the sources of COPY exist, and that
// .dockerignore lets through everything the build needs.
func TestDockerfileCopiesWhatIsThere(t *testing.T) {
	text := readFile(t, ".dockerignore")
	lines := strings.Split(text, "\n")
	needed := []string{"LICENSE"}
	for _, c := range readDockerfile(t).all("COPY") {
		words := strings.Fields(c)
		if strings.HasPrefix(words[0], "--from=") || words[0] == "." {
			continue
		}
		needed = append(needed, words[:len(words)-1]...)
	}
	out, err := exec.Command("go", "list", "-deps", "-tags", "fdb", "./...", "../pq/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	const module = "github.com/pqbridge/pqbridge/"
	for _, path := range strings.Fields(string(out)) {
		if below, ok := strings.CutPrefix(path, module); ok {
			folder, _, _ := strings.Cut(below, "/")
			needed = append(needed, folder)
		}
	}
	for _, name := range needed {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Error(err)
		}
		if !slices.Contains(lines, "!"+name) {
			t.Errorf(".dockerignore leaves out %s", name)
		}
	}
}
