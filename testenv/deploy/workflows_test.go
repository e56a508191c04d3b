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

// actionlint finds nothing in the workflows.
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

// Each part of .ci/run runs on every push, and nothing else does: what passes there passes here.
func TestWorkflowsRunEveryPart(t *testing.T) {
	parts := regexp.MustCompile(`(?m)^([a-z]+)\(\) \{`).
		FindAllSubmatch(read(t, root, ".ci", "run"), -1)
	text := read(t, root, ".github", "workflows", "ci.yml")

	var workflow struct {
		Jobs map[string]struct {
			If    string
			Steps []struct{ Run string }
		}
	}
	must(t, yaml.Unmarshal(text, &workflow))

	for _, part := range parts {
		run := regexp.MustCompile(`(parts: |\.ci/run )[a-z ]*\b` + string(part[1]) + `\b`)
		if !run.Match(text) {
			t.Errorf("no job runs .ci/run %s", part[1])
		}
	}
	if len(parts) < 8 {
		t.Errorf("%d parts: does the test still see them?", len(parts))
	}

	for name, job := range workflow.Jobs {
		for _, step := range job.Steps {
			if job.If == "" && strings.Contains(step.Run, "make ") {
				t.Errorf("job %s runs %q, which .ci/run does not", name, step.Run)
			}
		}
	}
}

// At night the same parts run, with everything that takes hours and with the next NATS server.
func TestWorkflowsRunNightly(t *testing.T) {
	text := string(read(t, root, ".github", "workflows", "ci.yml"))
	for _, want := range []string{
		"  schedule:\n",
		"make nightly\n",
		"VERSIONS=main\n",
		"nats-server/v2@main\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("ci.yml has no %q", want)
		}
	}
}

// pinnedAction is a commit, with the version that it had as a comment.
var pinnedAction = regexp.MustCompile(`^[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)

// Actions are pinned to commits, because a tag can be moved, and a job that may do more than read
// says so itself.
func TestWorkflowsAreSafe(t *testing.T) {
	versions := map[string]string{}
	for _, path := range workflows(t) {
		text := read(t, path)
		uses := regexp.MustCompile(`(?m)^[ -]*uses: (.*)$`)

		for _, used := range uses.FindAllStringSubmatch(string(text), -1) {
			name, version, _ := strings.Cut(used[1], "@")
			if !pinnedAction.MatchString(used[1]) ||
				versions[name] != "" && versions[name] != version {
				t.Errorf("%s: %q is not a commit with its version, or elsewhere at %s",
					path, used[1], versions[name])
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
