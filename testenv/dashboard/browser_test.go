package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

// root is the root of the repository.
const root = "../.."

// started is what all tests share: a browser, which takes a second to start, and the program.
var started struct {
	browser context.Context
	pq      string
}

func TestMain(m *testing.M) { harness.Main(browsing{m}) }

// browsing are the tests, for which the browser is there. It ends with this process, however that
// ends: chromedp ties it to this one, and its own children end with it.
type browsing struct{ *testing.M }

func (b browsing) Run() int {
	code, err := b.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	return code
}

func (b browsing) run() (code int, err error) {
	folder, err := os.MkdirTemp("", "pq-dashboard-test-")
	if err != nil {
		return 0, err
	}

	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()

	if started.pq, err = build(folder, "pq"); err != nil {
		return 0, err
	}

	browser, err := findBrowser()
	if err != nil {
		return 0, err
	}

	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(browser), chromedp.UserDataDir(filepath.Join(folder, "profile")),
		// It would refuse to run as root, as in containers; it opens only our pages.
		chromedp.NoSandbox,
		chromedp.Flag("host-resolver-rules", "MAP * 127.0.0.1"), // no name leads anywhere else
		chromedp.Flag("force-color-profile", "srgb"),
	)

	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	defer end()
	ctx, closeBrowser := chromedp.NewContext(allocator)

	if err := chromedp.Do(ctx); err != nil {
		closeBrowser()
		return 0, fmt.Errorf("%s: %w", browser, err)
	}

	started.browser = ctx

	code = b.M.Run()
	err = chromedp.Cancel(ctx) // waits for its end
	closeBrowser()

	return code, err
}

// build builds a program, and returns where it is.
func build(folder, name string) (program string, err error) {
	program = filepath.Join(folder, name)
	cmd := harness.Command("go", "build", "-o", program)

	if harness.Race { // then races of the program fail the test, which sees its exit code
		cmd.Args = append(cmd.Args, "-race")
	}

	cmd.Args = append(cmd.Args, "./cmd/"+name)
	cmd.Dir = root

	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}

	return program, nil
}

// findBrowser returns the path of Chromium.
func findBrowser() (string, error) {
	named := os.Getenv("PQ_TEST_CHROMIUM")
	for _, name := range []string{named, "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(cmp.Or(name, "-")); err == nil {
			return path, nil
		}
	}

	return "", errors.New("these tests need Chromium: install it, or name it in PQ_TEST_CHROMIUM")
}
