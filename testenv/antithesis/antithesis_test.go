package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// system is what Antithesis would run, as processes of this machine.
type system struct {
	t       *testing.T
	env     *testenv.Env
	bin     string // folder of the programs
	data    string // of the service
	history string
	service *exec.Cmd
}

func newSystem(t *testing.T) *system {
	s := &system{
		t: t, env: testenv.New(t, testenv.Options{Stopped: true}),
		bin: t.TempDir(), data: t.TempDir(), history: t.TempDir(),
	}
	for program, build := range map[string][]string{
		"pqbridge": {"-tags", "pebblegozstd", "../../cmd/pqbridge"},
		"setup":    {"-tags", "enable_antithesis_sdk", "."},
	} {
		args := []string{"build", "-ldflags=-s -w", "-o", filepath.Join(s.bin, program)}
		args = append(args, build...)
		out, err := harness.Command("go", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}

	for _, name := range commandNames(t) {
		must(t, os.Symlink(filepath.Join(s.bin, "setup"), filepath.Join(s.bin, name)))
	}
	s.env.NATS.Start()
	s.startService()
	t.Cleanup(s.killService)

	return s
}

// commandNames returns what the image has in /opt/antithesis/test/v1/queues.
func commandNames(t *testing.T) []string {
	dockerfile, err := os.ReadFile("../../deploy/antithesis/Dockerfile")
	must(t, err)
	found := regexp.MustCompile(`for name in ([a-z_ ]+);`).FindSubmatch(dockerfile)
	if found == nil {
		t.Fatal("the Dockerfile names no commands")
	}
	return strings.Fields(string(found[1]))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *system) startService() {
	s.service = harness.Command(filepath.Join(s.bin, "pqbridge"))
	s.service.Env = append(os.Environ(),
		"PQ_NATS_URL="+s.env.NATS.URL(), "PQ_HTTP_ADDR=off", "PQ_DATA_DIR="+s.data)
	must(s.t, s.service.Start())
}

// killService is kill -9.
func (s *system) killService() {
	_ = s.service.Process.Kill()
	_ = s.service.Wait()
}

// stopService returns when the process stands still.
func (s *system) stopService() {
	must(s.t, s.service.Process.Signal(syscall.SIGSTOP))
	var status syscall.WaitStatus
	_, err := syscall.Wait4(s.service.Process.Pid, &status, syscall.WUNTRACED, nil)
	must(s.t, err)
	if !status.Stopped() {
		s.t.Fatalf("the service does not stand still: %v", status)
	}
}

// process is a command that runs.
type process struct {
	*exec.Cmd
	out bytes.Buffer
}

// start starts a command by the beginning of its name, as Antithesis does.
func (s *system) start(prefix string) *process {
	s.t.Helper()
	paths, err := filepath.Glob(filepath.Join(s.bin, prefix+"*"))
	if err != nil || len(paths) != 1 {
		s.t.Fatalf("commands named %s: %q, %v", prefix, paths, err)
	}

	p := &process{Cmd: harness.Command(paths[0])}
	p.Stdout, p.Stderr = &p.out, &p.out
	p.Env = append(os.Environ(), "NATS_URL="+s.env.NATS.URL(), "HISTORY_DIR="+s.history,
		"ANTITHESIS_OUTPUT_DIR=", "ANTITHESIS_SDK_LOCAL_OUTPUT="+s.output())
	must(s.t, p.Cmd.Start())

	return p
}

func (s *system) run(prefix string) error {
	s.t.Helper()
	return s.wait(s.start(prefix))
}

func (s *system) wait(p *process) error {
	if err := p.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", p.Path, err, p.out.String())
	}
	return nil
}

// output is the file of what the commands tell Antithesis.
func (s *system) output() string { return filepath.Join(s.bin, "sdk.jsonl") }

// told is a line of it.
type told struct {
	Setup *struct {
		Status string `json:"status"`
	} `json:"antithesis_setup"`
	Assert *struct {
		Type      string `json:"display_type"`
		Message   string `json:"message"`
		Condition bool   `json:"condition"`
	} `json:"antithesis_assert"`
}

// told returns the messages of assertions by type and by whether they held. "setup complete" is
// among the keys if the workload said so.
func (s *system) told() map[string][]string {
	s.t.Helper()
	text, err := os.ReadFile(s.output())
	must(s.t, err)

	asserted := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		var told told
		must(s.t, json.Unmarshal([]byte(line), &told))
		if told.Setup != nil {
			asserted["setup "+told.Setup.Status] = []string{}
		}
		// Built without cgo, the SDK says so, as a failure. The image is built with it.
		if a := told.Assert; a != nil && !strings.Contains(a.Message, "CGO enabled") {
			key := fmt.Sprint(a.Type, " ", a.Condition)
			asserted[key] = append(asserted[key], a.Message)
		}
	}

	return asserted
}

// journals returns the operations in the files of drivers, as they were noted.
func (s *system) journals() map[string][]books.Operation {
	files, err := filepath.Glob(filepath.Join(s.history, "driver-*"))
	must(s.t, err)
	all := map[string][]books.Operation{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		must(s.t, err)
		for line := range strings.Lines(string(data)) {
			var op books.Operation
			if strings.HasSuffix(line, "\n") {
				must(s.t, json.Unmarshal([]byte(line), &op))
				all[file] = append(all[file], op)
			}
		}
	}
	return all
}

// await waits until so many drivers have noted as many lines.
func (s *system) await(drivers, lines int) {
	s.t.Helper()
	testenv.Eventually(s.t, func() error {
		journals := s.journals()
		for _, ops := range journals {
			if len(ops) < lines {
				return fmt.Errorf("%d requests of a driver: want %d", len(ops), lines)
			}
		}
		if len(journals) < drivers {
			return fmt.Errorf("%d drivers: want %d", len(journals), drivers)
		}
		return nil
	})
}

func TestCommands(t *testing.T) {
	s := newSystem(t)
	s.begin()
	t.Run("accept", s.accept)
	t.Run("find", s.find)
}

// The commands work on a service that is killed under them, as one of them is: both checkers accept
// the history, every assertion that should hold does, and all that should happen sometimes did.
func (s *system) accept(t *testing.T) {
	s.t = t
	t.Cleanup(s.keep)

	// The service is killed under two drivers.
	drivers := []*process{s.start("parallel_driver_"), s.start("parallel_driver_")}
	s.await(2, 10)
	s.killService()
	s.startService()
	for _, p := range drivers {
		must(t, s.wait(p))
	}

	// Of two requests that nobody answers, one has nobody left to say so.
	s.stopService()
	killed, late := s.start("parallel_driver_"), s.start("parallel_driver_")
	s.await(4, 1)
	must(t, killed.Process.Kill())
	_ = killed.Wait()
	s.killService()
	s.startService()
	must(t, s.wait(late))

	testenv.Eventually(t, func() error {
		must(t, s.run("parallel_driver_"))
		must(t, s.run("anytime_"))
		asserted := s.told()
		missing := without(asserted["Sometimes false"], asserted["Sometimes true"])
		if missing != nil {
			return fmt.Errorf("did not happen: %q", missing)
		}
		return nil
	})

	must(t, s.run("eventually_"))
	asserted := s.told()
	if failed := asserted["Always false"]; failed != nil {
		t.Errorf("do not hold: %q", failed)
	}
	for kind, want := range map[string][]string{
		"Reachable": {"the queues are configured"},
		"Always": {
			"the service answers as the protocol says", "no length is negative",
			"items are listed in order", passes,
		},
		"Sometimes": {
			"the outcome of a request is unknown", "an item is served", "a lease is acknowledged",
			"several items are listed", "a history is checked to its end",
		},
	} {
		if missing := without(want, asserted[kind+" true"]); missing != nil {
			t.Errorf("%s: not asserted: %q", kind, missing)
		}
	}

	// Where Python is missing, make test says so.
	if python, err := exec.LookPath("python3"); err == nil {
		second := harness.Command(python, "../proof/second/check.py",
			filepath.Join(s.history, "history.jsonl"))
		out, err := second.CombinedOutput()
		if err != nil || string(out) != "antithesis: accepted\n" {
			t.Errorf("the second checker: %v\n%s", err, out)
		}
	}
}

const passes = "the history has one order, and nothing is lost or served twice"

// without returns what is in a list and not in another one.
func without(list, other []string) (missing []string) {
	for _, text := range list {
		if !slices.Contains(other, text) {
			missing = append(missing, text)
		}
	}
	return missing
}

// begin runs what runs once.
func (s *system) begin() {
	s.t.Helper()
	setup := s.start("setup")
	testenv.Eventually(s.t, func() error {
		if _, err := os.Stat(s.output()); err != nil {
			return err
		}
		if s.told()["setup complete"] == nil {
			return errors.New("the workload does not say that it is ready")
		}
		return nil
	})
	must(s.t, setup.Process.Kill())
	_ = setup.Wait()
	must(s.t, s.run("first_"))
}

// The last command fails, and says so to Antithesis, if an item comes out that nobody pushed, or if
// one comes out twice.
func (s *system) find(t *testing.T) {
	for fault, plant := range map[string]func(op books.Operation) []books.Operation{
		"a push is not known": func(op books.Operation) []books.Operation {
			if op.Kind == books.Push && op.Outcome == books.Done {
				return []books.Operation{}
			}
			return nil
		},
		"a pop is there twice": func(op books.Operation) []books.Operation {
			if op.Kind.Pops() && op.Outcome == books.Done {
				again := op
				again.Call++
				return []books.Operation{op, again}
			}
			return nil
		},
	} {
		t.Run(fault, func(t *testing.T) {
			s.t, s.history = t, t.TempDir()
			must(t, os.RemoveAll(s.output()))
			testenv.Eventually(t, func() error {
				must(t, s.run("parallel_driver_"))
				if !s.plant(plant) {
					return errors.New("nothing to change")
				}
				return nil
			})

			if err := s.run("eventually_"); err == nil {
				t.Error("the last command finds nothing")
			}
			if failed := s.told()["Always false"]; !slices.Equal(failed, []string{passes}) {
				t.Errorf("do not hold: %q, want %q", failed, passes)
			}
		})
	}
}

// keep keeps the history of a test that has failed.
func (s *system) keep() {
	if !s.t.Failed() {
		return
	}
	dir, err := os.MkdirTemp("", "antithesis-")
	s.t.Logf("the history is in %s: %v", dir, errors.Join(err, os.CopyFS(dir, os.DirFS(s.history))))
}

// plant changes the first operation in the files of drivers for which change does not return nil.
// It reports whether there was one.
func (s *system) plant(change func(books.Operation) []books.Operation) bool {
	for file, ops := range s.journals() {
		for i, op := range ops {
			changed := change(op)
			if changed == nil {
				continue
			}
			noted := func(o books.Operation) bool { return o.Call == op.Call }
			ops = slices.Insert(slices.DeleteFunc(ops, noted), i-1, changed...)

			var text bytes.Buffer
			for _, op := range ops {
				must(s.t, json.NewEncoder(&text).Encode(op))
			}
			must(s.t, os.WriteFile(file, text.Bytes(), 0o600))
			return true
		}
	}
	return false
}

// The images are those of linux/amd64, built with the Go of the service's image. No container needs
// another network, or has what Antithesis brings itself.
func TestCompose(t *testing.T) {
	text, err := os.ReadFile("../../deploy/antithesis/docker-compose.yaml")
	must(t, err)
	var file struct {
		Services map[string]map[string]any
		Others   map[string]any `yaml:",inline"`
	}
	must(t, yaml.Unmarshal(text, &file))
	if file.Others["networks"] != nil || len(file.Services) != 3 {
		t.Errorf("networks %v, %d services", file.Others["networks"], len(file.Services))
	}

	for name, service := range file.Services {
		for key, want := range map[string]any{
			"platform": "linux/amd64", "container_name": name, "hostname": name,
			"logging": nil, "pull_policy": nil, "ports": nil, "network_mode": nil,
		} {
			if service[key] != want {
				t.Errorf("%s: %s is %v: want %v", name, key, service[key], want)
			}
		}
	}

	image := regexp.MustCompile(`(?m)^ARG GO_IMAGE=.*$`)
	var images []string
	for _, path := range []string{"../../Dockerfile", "../../deploy/antithesis/Dockerfile"} {
		text, err := os.ReadFile(path)
		must(t, err)
		images = append(images, image.FindString(string(text)))
	}
	if images[0] == "" || images[0] != images[1] {
		t.Errorf("images %q: want the same", images)
	}
}
