//go:build unix

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

// Installed into nothing, without the network, the packages start the service and pq uses it.
// SIGTERM to the outermost process ends all of them, with exit code 0 unless npx cannot tell.
func TestPackages(t *testing.T) {
	folder := os.Getenv("PQ_TEST_PACKAGES")
	if folder == "" {
		t.Skip("skipped: make test-packages runs it (PQ_TEST_PACKAGES names the packages)")
	}

	offline := []string{"--no-index", "--find-links", folder}
	uvx := append([]string{"uvx", "--offline"}, offline...)
	registry := newRegistry(t, folder)

	for name, p := range map[string]struct {
		install     [][]string
		service, pq []string
	}{
		"pip": {
			install: [][]string{
				{"python3", "-m", "venv", "env"},
				append([]string{"env/bin/pip", "install", "pqbridge-server"}, offline...),
			},
			service: []string{"env/bin/pqbridge"},
			pq:      []string{"env/bin/pq"},
		},
		"uvx": {
			service: append(slices.Clip(uvx), "pqbridge-server"),
			pq:      append(slices.Clip(uvx), "--from", "pqbridge-server", "pq"),
		},
		"npm": {
			install: [][]string{{"npm", "install", "pqbridge"}},
			service: []string{"node_modules/.bin/pqbridge"},
			pq:      []string{"node_modules/.bin/pq"},
		},
		"npx": {
			service: []string{"npx", "--yes", "pqbridge"},
			pq:      []string{"npx", "--yes", "--package=pqbridge", "pq"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEmpty(t, registry)
			for _, command := range p.install {
				e.run(command...)
			}

			c := e.command(append(p.service, "-dev")...)
			c.cmd.Stderr = &c.stderr
			c.startDev()
			e.env = append(e.env, "NATS_URL="+c.nats)

			e.run(append(slices.Clip(p.pq), "push", "jobs", "hello")...)
			pop := append(slices.Clip(p.pq), "pop", "jobs")
			if out := e.run(pop...); out != "hello" {
				t.Errorf("%v printed %q", pop, out)
			}

			var exit *exec.ExitError
			if err := e.command(pop...).cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
				t.Errorf("%v of an empty queue: %v, want the exit code of pq, 3", pop, err)
			}

			if name == "npx" {
				c.stopNPX()
			} else {
				c.stop(syscall.SIGTERM)
			}
			wantNoneLeft(t, c.cmd.Process.Pid)
		})
	}
}

// stopNPX sends SIGTERM to npx. If the shell between npx and the service does not pass it on, it
// ends that shell, and npx too. The service ends all the same, and shuts down.
func (c *command) stopNPX() {
	c.t.Helper()
	must(c.t, c.cmd.Process.Signal(syscall.SIGTERM))
	err := c.cmd.Wait() // also for the service, which holds stderr

	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGTERM {
		err = nil
	}
	if err != nil {
		c.t.Errorf("after SIGTERM: %v\n%s", err, c.log())
	}
	c.says("pqbridge has ended")
}

// Without the package of its platform, the command of npm names it. If its program is killed, it
// ends by that signal too.
func TestPackagesOfNPM(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("Node.js is not installed here")
	}

	e := newEmpty(t, "")
	start := readFile(t, ".ci", "packages", "start.js")
	e.write("start.js", start+`module.exports("pq")`)

	out, err := e.command("node", "start.js").cmd.CombinedOutput()
	if err == nil {
		t.Error("no error without the package")
	}
	wantWords(t, string(out), "pq: the package @pqbridge/server-", "is not installed")

	server := strings.Fields(strings.SplitAfter(string(out), "the package ")[1])[0]
	e.write("node_modules/"+server+"/bin/pq", "#!/bin/sh\nkill -KILL $$\n")
	err = e.command("node", "start.js").cmd.Run()

	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("%v, want SIGKILL as of its program", err)
	}
}

// A release that failed half way publishes to npm what is not there yet.
func TestPackagesCanBePublishedAgain(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"node", "python3"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed here", name)
		}
	}

	e := newEmpty(t, "")
	for name, file := range packed(t, time.Unix(1e9, 0)) {
		e.write(name, string(file))
	}
	e.write("bin/npm", `#!/bin/sh
case $* in
"view @pqbridge/server-linux-x64@1.2.3 version") echo 1.2.3 ;;
view*) exit 1 ;; # as npm does where there is no such package
*) echo "npm $*" ;;
esac`)
	e.env = append(e.env, "PATH="+filepath.Join(e.folder, "bin")+":"+os.Getenv("PATH"))
	publish, err := filepath.Abs(filepath.Join(root, ".ci", "npm-publish"))
	must(t, err)

	c := e.command("bash", publish, "pqbridge-linux-x64-1.2.3.tgz", "pqbridge-npm-1.2.3.tgz")
	out, err := c.cmd.CombinedOutput()
	must(t, err)

	const want = "@pqbridge/server-linux-x64@1.2.3 is there\n" +
		"npm publish ./pqbridge-npm-1.2.3.tgz\n"
	if string(out) != want {
		t.Errorf("it printed\n%swant\n%s", out, want)
	}
}

// empty is a folder, and the home of a user who has nothing in it.
type empty struct {
	*testing.T
	folder string
	env    []string
}

func newEmpty(t *testing.T, registry string) *empty {
	home := t.TempDir()
	return &empty{t, t.TempDir(), environment(
		"HOME="+home,
		"PQ_DATA_DIR="+filepath.Join(home, "data"),
		"XDG_CACHE_HOME=",
		"npm_config_cache="+filepath.Join(home, "npm"),
		"npm_config_registry="+registry,
		"npm_config_update_notifier=false",
		"PIP_DISABLE_PIP_VERSION_CHECK=1",
		"UV_PYTHON_DOWNLOADS=never",
	)}
}

// write writes a file that may be executed.
func (e *empty) write(name, text string) {
	e.Helper()
	path := filepath.Join(e.folder, name)
	must(e.T, os.MkdirAll(filepath.Dir(path), 0o755))
	must(e.T, os.WriteFile(path, []byte(text), 0o755))
}

// command returns a command in the folder, in a process group of its own, which ends with the test.
func (e *empty) command(args ...string) *command {
	if strings.Contains(args[0], "/") {
		args = append([]string{filepath.Join(e.folder, args[0])}, args[1:]...)
	}

	c := &command{t: e.T, cmd: harness.Command(args[0], args[1:]...)}
	c.cmd.Dir, c.cmd.Env = e.folder, e.env
	if c.cmd.SysProcAttr == nil {
		c.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}

	c.cmd.SysProcAttr.Setpgid = true
	e.Cleanup(func() {
		if c.cmd.Process != nil {
			_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
		}
	})

	return c
}

// run returns what a command prints, which must succeed.
func (e *empty) run(args ...string) string {
	e.Helper()
	c := e.command(args...)
	c.cmd.Stderr = &c.stderr
	out, err := c.cmd.Output()
	if err != nil {
		e.Fatalf("%v: %v\n%s%s", args, err, out, c.log())
	}

	return string(out)
}

// newRegistry serves the packages of npm in a folder, and has no others: npm cannot reach another
// registry, and finds no package for other platforms.
func newRegistry(t *testing.T, folder string) (url string) {
	// pqbridge-1.2.3.tgz, without a second hyphen, is the Helm chart.
	files, err := filepath.Glob(filepath.Join(folder, "*-*-*.tgz"))
	must(t, err)
	answers := map[string][]byte{} // by path
	server := httptest.NewServer(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			answer, ok := answers[r.URL.Path]
			if !ok {
				w.WriteHeader(http.StatusNotFound)
			}
			_, _ = w.Write(answer)
		}))
	t.Cleanup(server.Close)

	for _, path := range files {
		file, err := os.ReadFile(path)
		must(t, err)
		var about map[string]any
		must(t, json.Unmarshal(untar(t, file)["package/package.json"], &about))

		path = "/-/" + filepath.Base(path)
		answers[path] = file
		sum := sha512.Sum512(file)
		about["dist"] = map[string]string{
			"tarball":   server.URL + path,
			"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
		}

		answers["/"+about["name"].(string)], err = json.Marshal(map[string]any{
			"name":      about["name"],
			"dist-tags": map[string]any{"latest": about["version"]},
			"versions":  map[string]any{about["version"].(string): about},
		})
		must(t, err)
	}

	return server.URL
}

// untar returns the files in an archive.
func untar(t *testing.T, file []byte) map[string][]byte {
	t.Helper()
	unzipped, err := gzip.NewReader(bytes.NewReader(file))
	must(t, err)
	files := map[string][]byte{}

	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must(t, err)
		files[header.Name], err = io.ReadAll(archive)
		must(t, err)
	}
}

// packed is what .ci/pack makes of programs for two platforms, written at a time.
func packed(t *testing.T, made time.Time) map[string][]byte {
	t.Helper()
	folder := t.TempDir()

	// The header of a program for macOS: one load command, which says that it needs macOS 12.3.
	var header bytes.Buffer
	must(t, binary.Write(&header, binary.LittleEndian, []uint32{
		0xfeedfacf, 0x0100000c, 0, 2, 1, 24, 0, 0, 0x32, 24, 1, 12<<16 | 3<<8, 0, 0,
	}))

	for platform, program := range map[string][]byte{
		"linux_amd64":  []byte("program"),
		"darwin_arm64": header.Bytes(),
	} {
		for name, data := range map[string][]byte{
			"bin/pqbridge":         program,
			"bin/pq":               program,
			"docs/handle.sh":       []byte("#!/bin/sh\n"),
			"LICENSE":              []byte("ours"),
			"THIRD-PARTY-LICENSES": []byte("of others"),

			"deploy/helm/pqbridge/Chart.yaml": []byte("version: 1.2.3\n"),
		} {
			path := filepath.Join(folder, "pqbridge_1.2.3_"+platform, name)
			must(t, os.MkdirAll(filepath.Dir(path), 0o755))
			must(t, os.WriteFile(path, data, 0o600))
			must(t, os.Chtimes(path, made, made))
		}
	}

	pack := harness.Command(filepath.Join(root, ".ci", "pack"), folder, "1.2.3")
	out, err := pack.CombinedOutput()
	if err != nil {
		t.Fatalf(".ci/pack: %v\n%s", err, out)
	}

	paths, err := filepath.Glob(filepath.Join(folder, "*.*z"))
	must(t, err)
	wheels, err := filepath.Glob(filepath.Join(folder, "*.whl"))
	must(t, err)
	files := map[string][]byte{}
	for _, path := range append(paths, wheels...) {
		files[filepath.Base(path)], err = os.ReadFile(path)
		must(t, err)
	}

	return files
}

// Two clones of a commit give the same release and the same packages of the clients, in folders
// with other names, with another umask and GOFLAGS and files of other dates, whatever lies beside
// them.
func TestPackagesAreTheSameFromTwoClones(t *testing.T) {
	// The archive, the wheel, two packages of npm, the Helm chart and the list of what they are
	// built from; the JavaScript client's package, and the Python client's two.
	wantSameDist(t, 9, "dist/*", "dist", "dist-javascript", "dist-python", "VERSION=v0.0.0",
		"PYTHON=python3", "PLATFORMS="+runtime.GOOS+"/"+runtime.GOARCH)
}

// The same is true of what Maven Central gets.
func TestPackagesOfJavaAreTheSameFromTwoClones(t *testing.T) {
	if _, err := exec.LookPath("mvn"); err != nil {
		t.Skip("skipped: Maven is not installed here")
	}

	// The classes, sources and Javadoc of five modules, whatever the Javadoc of this JDK warns of.
	wantSameDist(t, 15, "bin/maven/io/github/pqbridge/*/*/*.jar", "dist-java",
		"MVN=mvn -B -q -Dmaven.javadoc.failOnWarnings=false")
}

// wantSameDist checks that make, with these arguments, gives the same files in two clones, as many
// as are wanted. A pattern says where they are.
func wantSameDist(t *testing.T, want int, pattern string, args ...string) {
	t.Helper()
	if os.Getenv("PQ_TEST_PACKAGES") == "" {
		t.Skip("skipped: make test-packages runs it")
	}
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skip("skipped: this is no clone")
	}

	first := clonedDist(t, "clone", "022", "", pattern, args)
	again := clonedDist(t, "another/of-a-longer-name", "077", `
		export TZ=Asia/Tokyo GOFLAGS=-tags=left
		find . -path ./.git -prune -o -type f -exec touch -t 200102030405 {} +
		mkdir docs/__pycache__; echo left >docs/__pycache__/left.pyc`, pattern, args)

	if len(first) != want {
		t.Errorf("a release has the files %v", slices.Sorted(maps.Keys(first)))
	}
	if !maps.Equal(first, again) {
		t.Errorf("two clones give\n%v\nand\n%v", first, again)
	}
}

// clonedDist runs make in a new clone, after other commands there. It returns the sums of the files
// that the pattern names, by their names.
func clonedDist(
	t *testing.T, name, umask, before, pattern string, args []string,
) map[string][sha256.Size]byte {
	t.Helper()
	clone := filepath.Join(t.TempDir(), name)
	source, err := filepath.Abs(root)
	must(t, err)

	cmd := harness.Command("sh", append([]string{"-ec", `
		umask "$1"; git clone -q "$2" "$3"; cd "$3"; shift 3
		` + before + `
		make -s "$@"`, "sh", umask, source, clone}, args...)...)
	cmd.Env = append(os.Environ(), "MAKEFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	paths, err := filepath.Glob(filepath.Join(clone, pattern))
	must(t, err)
	sums := map[string][sha256.Size]byte{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		must(t, err)
		sums[filepath.Base(path)] = sha256.Sum256(data)
	}

	return sums
}

// The same programs give the same packages, whenever they are packed: a release that failed half
// way can be repeated. Their names say where they can be installed.
func TestPackagesAreTheSameEachTime(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("Python is not installed here")
	}

	first := packed(t, time.Unix(1e9, 0))
	again := packed(t, time.Unix(2e9, 0))

	const linux = "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64"
	want := []string{
		"pqbridge-1.2.3.tgz",
		"pqbridge-darwin-arm64-1.2.3.tgz",
		"pqbridge-linux-x64-1.2.3.tgz",
		"pqbridge-npm-1.2.3.tgz",
		"pqbridge_1.2.3_darwin_arm64.tar.gz",
		"pqbridge_1.2.3_linux_amd64.tar.gz",
		"pqbridge_server-1.2.3-py3-none-macosx_12_3_arm64.whl",
		"pqbridge_server-1.2.3-py3-none-" + linux + ".whl",
	}
	if names := slices.Sorted(maps.Keys(first)); !slices.Equal(names, want) {
		t.Errorf("packed %q, want %q", names, want)
	}
	for name := range first {
		if !bytes.Equal(first[name], again[name]) {
			t.Errorf("%s differs", name)
		}
	}

	wantNode(t, untar(t, first["pqbridge-npm-1.2.3.tgz"])["package/package.json"])
	wantRecord(t, first[want[len(want)-1]])
}

// wantNode checks that the package of the commands names those of all platforms, each exactly.
func wantNode(t *testing.T, text []byte) {
	t.Helper()
	var about struct {
		OptionalDependencies map[string]string
		Scripts              map[string]string
	}
	must(t, json.Unmarshal(text, &about))

	want := map[string]string{
		"@pqbridge/server-linux-x64":    "1.2.3",
		"@pqbridge/server-linux-arm64":  "1.2.3",
		"@pqbridge/server-darwin-x64":   "1.2.3",
		"@pqbridge/server-darwin-arm64": "1.2.3",
	}
	if !maps.Equal(about.OptionalDependencies, want) || len(about.Scripts) > 0 {
		t.Errorf("the package of the commands is %s", text)
	}
}

// wantRecord checks that a wheel lists its files with their sums, and that what it installs as
// commands may be executed.
func wantRecord(t *testing.T, file []byte) {
	t.Helper()
	wheel, err := zip.NewReader(bytes.NewReader(file), int64(len(file)))
	must(t, err)
	want, record := "", ""

	for _, f := range wheel.File {
		r, err := f.Open()
		must(t, err)
		data, err := io.ReadAll(r)
		must(t, err)

		if strings.HasSuffix(f.Name, "/RECORD") {
			want += f.Name + ",,\n"
			record = string(data)
			continue
		}

		sum := sha256.Sum256(data)
		want += fmt.Sprintf("%s,sha256=%s,%d\n", f.Name,
			base64.RawURLEncoding.EncodeToString(sum[:]), len(data))
		if script := strings.Contains(f.Name, "/scripts/"); script != (f.Mode() == 0o755) {
			t.Errorf("%s has the mode %v", f.Name, f.Mode())
		}
	}
	if record != want {
		t.Errorf("the wheel lists\n%swant\n%s", record, want)
	}
}
