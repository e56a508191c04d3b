package deploy

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
	"sigs.k8s.io/yaml"
)

func workflows(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no workflows: %v", err)
	}
	return paths
}

func TestWorkflowsLint(t *testing.T) {
	// Without shellcheck and pyflakes, which not every machine has.
	linter, err := actionlint.NewLinter(os.Stderr, &actionlint.LinterOptions{})
	must(t, err)
	problems, err := linter.LintFiles(workflows(t), nil)
	must(t, err)
	for _, problem := range problems {
		t.Error(problem)
	}
}

// pinnedAction is a commit, with the version that it had as a comment.
var pinnedAction = regexp.MustCompile(`^[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)

// TestWorkflowsPinActions: a tag of an action can be moved, a commit cannot.
func TestWorkflowsPinActions(t *testing.T) {
	versions := map[string]string{}
	for _, path := range workflows(t) {
		for line := range strings.Lines(string(read(t, path))) {
			_, action, ok := strings.Cut(strings.TrimSpace(line), "uses: ")
			if !ok {
				continue
			}
			if !pinnedAction.MatchString(action) {
				t.Errorf("%s: %q is not a commit with its version", path, action)
			}
			name, version, _ := strings.Cut(action, "@")
			if before := versions[name]; before != "" && before != version {
				t.Errorf("%s: %s, and elsewhere %s", path, action, before)
			}
			versions[name] = version
		}
	}
}

// TestWorkflowsMayLittle: what a job may do beyond reading is granted to that job.
func TestWorkflowsMayLittle(t *testing.T) {
	for _, path := range workflows(t) {
		var workflow struct {
			Permissions map[string]string
			Jobs        map[string]struct {
				Timeout int `json:"timeout-minutes"`
			}
		}
		must(t, yaml.Unmarshal(read(t, path), &workflow))
		if len(workflow.Permissions) != 1 || workflow.Permissions["contents"] != "read" {
			t.Errorf("%s: permissions %v: want contents: read", path, workflow.Permissions)
		}
		for name, job := range workflow.Jobs {
			if job.Timeout == 0 {
				t.Errorf("%s: job %s may hang for six hours: want timeout-minutes", path, name)
			}
		}
		if bytes.Contains(read(t, path), []byte("pull_request_target")) {
			t.Errorf("%s runs code of strangers with our permissions", path)
		}
	}
}
