package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// rendered has what the chart makes, one file for each case. The tests of that module render them.
var rendered = filepath.Join(root, "testenv", "deploy", "testdata")

// workload is the part of a StatefulSet or a Deployment that is about pqbridge itself.
type workload struct {
	Kind string
	Spec struct {
		Template struct {
			Spec struct {
				Grace      int `yaml:"terminationGracePeriodSeconds"`
				Containers []struct {
					Command []string
					Env     []struct {
						Name, Value string
						ValueFrom   any `yaml:"valueFrom"`
					}
					Ports []struct {
						ContainerPort int `yaml:"containerPort"`
					}
					VolumeMounts []struct {
						MountPath string `yaml:"mountPath"`
					} `yaml:"volumeMounts"`
					StartupProbe   probe `yaml:"startupProbe"`
					LivenessProbe  probe `yaml:"livenessProbe"`
					ReadinessProbe probe `yaml:"readinessProbe"`
				}
			}
		}
	}
}

type probe struct {
	HTTPGet struct{ Path string } `yaml:"httpGet"`
	Timeout int                   `yaml:"timeoutSeconds"`
}

// workloads returns the workloads of the chart by the names of their files.
func workloads(t *testing.T) map[string]workload {
	t.Helper()
	all := map[string]workload{}
	paths, err := filepath.Glob(filepath.Join(rendered, "*.yaml"))
	must(t, err)

	for _, path := range paths {
		text, err := os.ReadFile(path)
		must(t, err)

		for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
			var w workload
			if err := decoder.Decode(&w); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", path, err)
			}

			if w.Kind != "StatefulSet" && w.Kind != "Deployment" {
				continue
			}

			if w.Spec.Template.Spec.Containers[0].Command == nil { // or else it is the dashboard
				all[filepath.Base(path)] = w
			}
		}
	}
	if len(all) == 0 {
		t.Fatalf("no workloads in %s", rendered)
	}

	return all
}

// values.schema.json lists the variables of pqbridge -help in their order, so the chart refuses any
// other.
func TestChartKnowsTheVariables(t *testing.T) {
	text := readFile(t, "deploy", "helm", "pqbridge", "values.schema.json")
	var schema struct {
		Properties struct {
			Config struct {
				Names struct{ Enum []string } `json:"propertyNames"`
			}
		}
	}
	must(t, json.Unmarshal([]byte(text), &schema))

	var want []string
	for _, v := range variables() {
		want = append(want, v.name)
	}
	if got := schema.Properties.Config.Names.Enum; !slices.Equal(got, want) {
		list, _ := json.Marshal(want)
		t.Errorf("config in values.schema.json should have the propertyNames %s, and has %q",
			list, got)
	}
}

// pqbridge accepts the variables that the chart sets.
func TestChartConfigures(t *testing.T) {
	for name, w := range workloads(t) {
		t.Run(name, func(t *testing.T) {
			pod := w.Spec.Template.Spec
			container := pod.Containers[0]

			for _, v := range container.Env {
				if v.ValueFrom != nil {
					v.Value = "secret"
				}
				t.Setenv(v.Name, v.Value)
			}

			c, err := loadConfig(false) // refuses unknown variables
			must(t, err)
			if grace := time.Duration(pod.Grace) * time.Second; grace <= c.ShutdownTimeout {
				t.Errorf("killed after %v: want more than the shutdown's %v",
					grace, c.ShutdownTimeout)
			}

			if want := fmt.Sprintf(":%d", container.Ports[0].ContainerPort); c.HTTPAddr != want {
				t.Errorf("PQ_HTTP_ADDR %s: want the port of the container, %s", c.HTTPAddr, want)
			}

			stored := c.DataDir
			if c.Store == storeFDB {
				stored = c.FDBClusterFile
			}

			paths := []string{stored}
			for _, a := range []access{c.NATS, c.Leaf} {
				paths = append(paths, a.Creds, a.Nkey, a.TLS.CA, a.TLS.Cert, a.TLS.Key)
			}

			for _, path := range paths {
				mounted := path == ""
				for _, mount := range container.VolumeMounts {
					mounted = mounted || strings.HasPrefix(path, mount.MountPath+"/")
				}
				if !mounted {
					t.Errorf("%s is in none of %v", path, container.VolumeMounts)
				}
			}

			for _, p := range []probe{container.StartupProbe, container.ReadinessProbe} {
				if timeout := time.Duration(p.Timeout) * time.Second; timeout <= c.HTTPTimeout {
					t.Errorf("probe %+v: want it to wait for more than PQ_HTTP_TIMEOUT, %v",
						p, c.HTTPTimeout)
				}
			}
		})
	}
}

// seriesOf returns the names of series with the names of their labels, as testdata/metrics.txt has
// them.
func seriesOf(metrics string) string {
	labels := map[string][]string{}
	sample := regexp.MustCompile(`(?m)^((?:pq|process|go)_\w+)(?:\{([^}]*)\})? `)

	for _, found := range sample.FindAllStringSubmatch(metrics, -1) {
		name := found[1]
		if !strings.HasPrefix(name, "pq_") &&
			!slices.Contains([]string{"process_resident_memory_bytes", "process_cpu_seconds_total"},
				name) {
			continue // they depend on the machine and on the version of Go
		}

		labels[name] = append(labels[name], "")
		for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(found[2], -1) {
			labels[name] = append(labels[name], label[1])
		}
	}

	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		slices.Sort(labels[name])
		fmt.Fprintln(&text, strings.TrimSpace(name+strings.Join(slices.Compact(labels[name]), " ")))
	}

	return text.String()
}

// A bridge answers what probes, Prometheus and KEDA will ask it.
func TestDeployedAgainstABridge(t *testing.T) {
	env := withAllMetrics(t)
	golden := filepath.Join(rendered, "metrics.txt")
	got := seriesOf(metricsOf(t, env.Bridge))

	if *update {
		must(t, os.WriteFile(golden, []byte(got), 0o644))
	}

	if want, err := os.ReadFile(golden); err != nil || got != string(want) {
		t.Errorf(
			"%s (%v) names other series than a bridge; if the bridge is right, run go test "+
				"-update here. They are:\n%s",
			golden,
			err,
			got,
		)
	}

	paths := map[string]bool{"/metrics": true}
	for _, w := range workloads(t) {
		c := w.Spec.Template.Spec.Containers[0]
		for _, p := range []probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			paths[p.HTTPGet.Path] = true
		}
	}

	for path := range paths {
		if status, body, err := env.Bridge.Get(path); err != nil || status != http.StatusOK {
			t.Errorf("%s: %d %s %v", path, status, body, err)
		}
	}

	trigger := kedaTrigger(t)
	u, err := url.Parse(trigger["url"])
	must(t, err)

	var load map[string]float64
	_, body, err := env.Bridge.Get(u.Path)
	if err != nil || json.Unmarshal(body, &load) != nil || load[trigger["valueLocation"]] != 1 {
		t.Errorf("%s: %s %v: want 1 at %s", u.Path, body, err, trigger["valueLocation"])
	}
}

// kedaTrigger returns the parameters of the scaler that asks a bridge.
func kedaTrigger(t *testing.T) map[string]string {
	t.Helper()
	text := readFile(t, "deploy", "keda", "metrics-api.yaml")
	var object struct {
		Spec struct {
			Triggers []struct{ Metadata map[string]string }
		}
	}
	if err := yaml.Unmarshal([]byte(text), &object); err != nil || len(object.Spec.Triggers) != 1 {
		t.Fatalf("%+v: %v", object, err)
	}

	return object.Spec.Triggers[0].Metadata
}

// The document has a section for each alert, in the order of the rules, and each alert links to its
// own.
func TestOnCallExplainsTheAlerts(t *testing.T) {
	rules := readFile(t, "deploy", "prometheus", "rules.yaml")
	document := readFile(t, "docs", "oncall.md")

	matches := func(text, pattern string) (all []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			all = append(all, m[1])
		}
		return all
	}

	alerts := matches(rules, `(?m)^ *- alert: (\w+)$`)
	explained := matches(document, `(?m)^### (Pq\w+)$`)
	if len(alerts) == 0 || !slices.Equal(alerts, explained) {
		t.Errorf("docs/oncall.md explains %v, and deploy/prometheus/rules.yaml has %v",
			explained, alerts)
	}

	linked := matches(rules, `(?m)^ *runbook_url: \S+/docs/oncall\.md#(\w+)$`)
	sections := strings.Fields(strings.ToLower(strings.Join(alerts, " ")))
	if !slices.Equal(linked, sections) {
		t.Errorf("the alerts link to %v: want %v", linked, sections)
	}
}

// unit has the settings of a unit of systemd, each with all of its values.
type unit map[string][]string

func readUnit(t *testing.T, name string) unit {
	t.Helper()
	u := unit{}
	setting := regexp.MustCompile(`(?m)^(\w+)=(.*)$`)

	for _, m := range setting.FindAllStringSubmatch(readFile(t, "deploy", "systemd", name), -1) {
		u[m[1]] = append(u[m[1]], m[2])
	}

	return u
}

// configuration returns what a unit's environment makes of the configuration.
func (u unit) configuration(t *testing.T) *config {
	t.Helper()
	for _, variable := range u["Environment"] {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}

	c, err := loadConfig(false)
	must(t, err)
	return c
}

// pqbridge accepts the variables that the unit sets.
func TestUnitConfigures(t *testing.T) {
	u := readUnit(t, "pqbridge.service")
	c := u.configuration(t)
	if state := u["StateDirectory"][0]; !strings.HasPrefix(c.DataDir, "/var/lib/"+state+"/") {
		t.Errorf("PQ_DATA_DIR %s is not below StateDirectory %s", c.DataDir, state)
	}

	stop, err := time.ParseDuration(u["TimeoutStopSec"][0])
	if err != nil || stop <= c.ShutdownTimeout {
		t.Errorf("TimeoutStopSec %v, %v: want more than the shutdown's %v",
			stop, err, c.ShutdownTimeout)
	}
}

// The backup's unit has the service's user, variables and folder, because the service makes the
// backup, or the unit itself opens the store. Its commands make a backup of a service that runs.
func TestBackupUnit(t *testing.T) {
	service, backup := readUnit(t, "pqbridge.service"), readUnit(t, "pqbridge-backup.service")
	for _, setting := range []string{
		"Environment", "EnvironmentFile", "DynamicUser", "User", "StateDirectory",
		"StateDirectoryMode",
		"UMask",
	} {
		if want := service[setting]; len(want) != 1 || !slices.Equal(backup[setting], want) {
			t.Errorf("%s is %q: want %q, as in pqbridge.service", setting, backup[setting], want)
		}
	}

	dir := t.TempDir()
	data := strings.TrimPrefix(service["Environment"][0], "PQ_DATA_DIR=/var/lib/pqbridge")
	startDev(t, "PQ_DATA_DIR="+dir+data)

	for _, line := range slices.Concat(backup["ExecStartPre"], backup["ExecStart"]) {
		words := strings.Fields(strings.ReplaceAll(line, "/var/lib/pqbridge", dir))
		if words[0] == "/usr/local/bin/pqbridge" {
			words[0] = os.Args[0]
		}

		cmd := harness.Command(words[0], words[1:]...)
		cmd.Env = environment("PQ_DATA_DIR=" + dir + data)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}

	made, err := filepath.Glob(filepath.Join(dir, "backup", "20*Z"))
	if err != nil || len(made) != 1 {
		t.Errorf("backups %v, %v: want one", made, err)
	}
}

// systemd accepts the units, and judges the services to be well confined: 0 to 10, less is better.
func TestUnitWithSystemd(t *testing.T) {
	harness.OnlyClients(t)
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed here")
	}

	units, err := filepath.Glob(filepath.Join(root, "deploy", "systemd", "*"))
	if err != nil || len(units) == 0 {
		t.Fatalf("no units: %v", err)
	}

	dir := t.TempDir() // of all, because the timer starts a service
	for i, unit := range units {
		// It looks for the program, which need not be installed.
		name := filepath.Base(unit)
		text := readFile(t, "deploy", "systemd", name)
		units[i] = filepath.Join(dir, name)
		must(t, os.WriteFile(units[i],
			[]byte(regexp.MustCompile(`/usr/local/bin/\w+`).ReplaceAllString(text, "/bin/sh")),
			0o644))
	}

	for _, path := range units {
		out, err := harness.Command(analyze, "verify", "--man=no", path).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("systemd-analyze verify: %v\n%s", err, out)
		}

		if filepath.Ext(path) != ".service" {
			continue
		}

		security := []string{"security", "--offline=true", "--threshold=15", "--no-pager", path}
		if out, err := harness.Command(analyze, security...).CombinedOutput(); err != nil {
			t.Errorf("systemd-analyze security: %v: want an exposure of at most 1.5\n%s", err, out)
		}
	}
}
