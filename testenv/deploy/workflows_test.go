package deploy

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
		"fetch-depth: 0 ", // for the release before
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

		for _, install := range regexp.MustCompile(`pip install.*|npm (install|i|exec) .*|npx .*`).
			FindAllString(string(text), -1) {
			if !strings.HasPrefix(install, "pip install --require-hashes -r ") {
				t.Errorf("%s: %q takes what it gets, without a hash", path, install)
			}
		}
	}
}

// A job that may publish runs no code of others: it takes files that a job without rights has
// built. A plugin or an install script that was tampered with gets neither a token nor a key.
func TestPublishersBuildNothing(t *testing.T) {
	var workflow struct {
		Jobs map[string]struct {
			Environment string
			Permissions map[string]string
			Steps       []struct{ Uses, Run string }
		}
	}
	must(t, yaml.Unmarshal(read(t, root, ".github", "workflows", "release.yml"), &workflow))

	takes := []string{
		"actions/checkout", "actions/download-artifact", "actions/attest-build-provenance",
	}
	builds := regexp.MustCompile(`\b(make|docker|go|mvn|apt-get) |\bnpm (ci|install|i|exec)\b`)
	publishers := 0

	for name, job := range workflow.Jobs {
		rights := slices.Collect(maps.Values(job.Permissions))
		if job.Environment == "" && !slices.Contains(rights, "write") {
			continue
		}
		publishers++

		for _, step := range job.Steps {
			action, _, _ := strings.Cut(step.Uses, "@")
			if action != "" && !slices.Contains(takes, action) {
				t.Errorf("job %s may publish, and uses %s", name, action)
			}

			run := strings.ReplaceAll(step.Run, "npm ci --ignore-scripts", "")
			if found := builds.FindString(run); found != "" {
				t.Errorf("job %s may publish, and runs %q", name, found)
			}
		}
	}

	if publishers < 6 {
		t.Errorf("%d jobs publish: does the test still see them?", publishers)
	}
}

// pip installs only files whose hashes are known. What is asked for by hand is in the lists with
// the hashes, at that version.
func TestRequirementsHaveHashes(t *testing.T) {
	asked, known := map[string]string{}, map[string]string{}
	for _, folder := range []string{"client/python", "client/python/suite", ".ci/publish"} {
		lists, err := filepath.Glob(filepath.Join(root, folder, "requirements*.txt"))
		if err != nil || len(lists) != 1 {
			t.Fatalf("%s: %v, %v, want one list", folder, lists, err)
		}

		list := string(read(t, lists[0]))
		for _, line := range strings.Split(list, "\n") {
			name, rest, isPackage := strings.Cut(line, "==")
			if isPackage && !strings.HasSuffix(rest, ` \`) {
				t.Errorf("%s: %s has no hash", lists[0], name)
			}
		}

		version := regexp.MustCompile(`(?m)^([\w-]+)==([\w.]+)`)
		for _, m := range version.FindAllStringSubmatch(list, -1) {
			known[folder+" "+m[1]] = m[2]
		}
		by := read(t, strings.TrimSuffix(lists[0], ".txt")+".in")
		for _, m := range version.FindAllStringSubmatch(string(by), -1) {
			asked[folder+" "+strings.ReplaceAll(m[1], "_", "-")] = m[2]
		}
	}

	for name, version := range asked {
		if known[name] != version {
			t.Errorf("%s %s is asked for, and %q is listed: run the command in the list",
				name, version, known[name])
		}
	}
	if len(asked) < 20 {
		t.Errorf("%d packages: does the test still see them?", len(asked))
	}
}

// Dependabot watches each folder that says what to fetch from Go's proxy, npm, PyPI, crates.io or
// Maven Central.
func TestDependabotWatchesAll(t *testing.T) {
	var config struct {
		Updates []struct {
			Ecosystem   string `json:"package-ecosystem"`
			Directories []string
		}
	}
	must(t, yaml.Unmarshal(read(t, root, ".github", "dependabot.yml"), &config))
	watched := map[string]bool{}
	for _, update := range config.Updates {
		kinds := []string{"gomod", "npm", "pip", "cargo", "maven"}
		if !slices.Contains(kinds, update.Ecosystem) {
			continue
		}
		for _, folder := range update.Directories {
			watched[update.Ecosystem+" "+folder] = true
		}
	}

	found := map[string]bool{}
	must(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		ecosystem := map[string]string{
			"go.mod": "gomod", "package-lock.json": "npm", "requirements.in": "pip",
			"requirements-dev.in": "pip", "Cargo.lock": "cargo", "pom.xml": "maven",
		}[entry.Name()]

		made := []string{"node_modules", ".git", "bin", "target"}
		_, noParent := os.Stat(filepath.Join(filepath.Dir(path), "..", "pom.xml"))
		switch {
		case entry.IsDir() && slices.Contains(made, entry.Name()):
			return fs.SkipDir
		case ecosystem == "maven" && noParent == nil: // a module, which is watched with its parent
		case ecosystem != "":
			folder, err := filepath.Rel(root, filepath.Dir(path))
			must(t, err)
			found[ecosystem+" "+filepath.Join("/", folder)] = true
		}
		return err
	}))

	if !maps.Equal(watched, found) {
		t.Errorf("Dependabot watches %v, and there are %v", watched, found)
	}
}
