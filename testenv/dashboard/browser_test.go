package dashboard

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"go.uber.org/goleak"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

// root is that of the repository.
const root = "../.."

// started is what all tests share: a browser, which takes a second to start, and the program.
var started struct {
	browser context.Context
	pq      string
}

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := runWith(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// runWith runs the tests while the browser is there.
func runWith(m *testing.M) (code int, err error) {
	folder, err := os.MkdirTemp("", "pq-dashboard-test-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()

	started.pq = filepath.Join(folder, "pq")
	build := harness.Command("go", "build", "-o", started.pq)
	if harness.Race { // then races of the program fail the test, which sees its exit code
		build.Args = append(build.Args, "-race")
	}
	build.Args = append(build.Args, "./cmd/pq")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, out)
	}

	browser, err := findBrowser()
	if err != nil {
		return 0, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(browser), chromedp.UserDataDir(filepath.Join(folder, "profile")),
		chromedp.NoSandbox, // it would refuse to run as root, as in containers; it opens only our pages
		// No name leads anywhere but to this machine.
		chromedp.Flag("host-resolver-rules", "MAP * 127.0.0.1"),
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

	code = m.Run()
	err = chromedp.Cancel(ctx) // waits for its end
	closeBrowser()
	return code, err
}

// findBrowser returns the path of Chromium.
func findBrowser() (string, error) {
	for _, name := range []string{os.Getenv("PQ_TEST_CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(cmp.Or(name, "-")); err == nil {
			return path, nil
		}
	}
	return "", errors.New("these tests need Chromium: install it, or name it in PQ_TEST_CHROMIUM")
}
