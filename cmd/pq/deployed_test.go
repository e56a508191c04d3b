package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/login"
	"github.com/pqbridge/pqbridge/testenv"
)

// deployed is a container of pq, wherever it stands in a Compose file or in what the chart makes.
type deployed struct {
	Entrypoint  []string          // Compose
	Environment map[string]string // Compose
	Command     []string          // Compose: the arguments; Kubernetes: the program
	Args        []string
	Env         []struct{ Name string }
}

// TestDeploymentsRunTheDashboard parses the command lines and variables with which files to deploy run pq.
func TestDeploymentsRunTheDashboard(t *testing.T) {
	for _, pattern := range []string{"docker-compose*.yml", "testenv/deploy/testdata/dashboard*.yaml"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		must(t, err)
		if len(paths) != 2 {
			t.Errorf("%s: %v", pattern, paths)
		}
		for _, path := range paths {
			found := 0
			for _, c := range containersOf(t, path) {
				args, names := c.Args, []string{}
				for _, v := range c.Env {
					names = append(names, v.Name)
				}
				switch {
				case slices.Equal(c.Entrypoint, []string{"/usr/local/bin/pq"}):
					args = c.Command
					for name := range c.Environment {
						names = append(names, name)
					}
				case !slices.Equal(c.Command, []string{"/usr/local/bin/pq"}):
					continue
				}
				found++
				checkDashboard(t, path, args)
				for _, name := range names {
					if strings.HasPrefix(name, "NATS_") && !knowsVariable(name) {
						t.Errorf("%s: pq does not know %s", path, name)
					}
				}
			}
			if found != 1 {
				t.Errorf("%s has %d dashboards: does the test still see it?", path, found)
			}
		}
	}

	unit, err := os.ReadFile(filepath.Join(root, "deploy", "systemd", "pq-dashboard.service"))
	must(t, err)
	start := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/pq (.*)$`).FindSubmatch(unit)
	checkDashboard(t, "the unit", strings.Fields(string(start[1])))
}

// containersOf returns all containers in a file, whatever they are in.
func containersOf(t *testing.T, path string) (all []deployed) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, mappingsOf(&document)...)
	}
}

func mappingsOf(node *yaml.Node) (all []deployed) {
	var c deployed
	if node.Kind == yaml.MappingNode && node.Decode(&c) == nil {
		all = append(all, c)
	}
	for _, child := range node.Content {
		all = append(all, mappingsOf(child)...)
	}
	return all
}

func checkDashboard(t *testing.T, where string, args []string) {
	t.Helper()
	if len(args) == 0 || args[0] != "dashboard" {
		t.Errorf("%s runs pq %q", where, args)
	} else if err := parse(args); err != nil {
		t.Errorf("%s: %q: %v", where, args, err)
	}
}

func knowsVariable(name string) bool {
	for _, v := range login.Variables {
		if v.Variable == name {
			return true
		}
	}
	return false
}

// TestDocumentsRunTheDashboardInContainers parses what documents have docker run of pq.
func TestDocumentsRunTheDashboardInContainers(t *testing.T) {
	found := 0
	for name, text := range testenv.Documents(t, root) {
		text = strings.ReplaceAll(text, "\\\n", " ")
		for _, m := range regexp.MustCompile(`(?m)^ +docker run .* --entrypoint pq pqbridge (.*)$`).FindAllStringSubmatch(text, -1) {
			found++
			checkDashboard(t, name, strings.Fields(m[1]))
		}
	}
	if found != 2 {
		t.Errorf("%d command lines: does the test still see them?", found)
	}
}
