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

// TestWorkflowsAreSafe: a tag of an action can be moved, a commit cannot. What a job may do beyond
// reading is granted to that job.
func TestWorkflowsAreSafe(t *testing.T) {
	versions := map[string]string{}
	for _, path := range workflows(t) {
		text := read(t, path)
		for _, used := range regexp.MustCompile(`(?m)^[ -]*uses: (.*)$`).FindAllStringSubmatch(string(text), -1) {
			name, version, _ := strings.Cut(used[1], "@")
			if !pinnedAction.MatchString(used[1]) || versions[name] != "" && versions[name] != version {
				t.Errorf("%s: %q is not a commit with its version, or elsewhere at %s", path, used[1], versions[name])
			}
			versions[name] = version
		}
		var workflow struct {
			Permissions map[string]string
			Jobs        map[string]struct {
				Timeout int `json:"timeout-minutes"`
			}
		}
		must(t, yaml.Unmarshal(text, &workflow))
		if len(workflow.Permissions) != 1 || workflow.Permissions["contents"] != "read" {
			t.Errorf("%s: permissions %v: want contents: read", path, workflow.Permissions)
		}
		for name, job := range workflow.Jobs {
			if job.Timeout == 0 {
				t.Errorf("%s: job %s may hang for six hours: want timeout-minutes", path, name)
			}
		}
		if bytes.Contains(text, []byte("pull_request_target")) {
			t.Errorf("%s runs code of strangers with our permissions", path)
		}
	}
}
