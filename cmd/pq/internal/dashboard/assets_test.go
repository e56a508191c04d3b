package dashboard

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func asset(t *testing.T, name string) string {
	t.Helper()
	data, err := files.ReadFile(path.Join("assets", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// What is vendored is what VENDORED.md says, with its licence.
func TestVendored(t *testing.T) {
	table := asset(t, "VENDORED.md")
	entries, err := fs.ReadDir(files, "assets/vendor")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".LICENSE") {
			continue
		}
		line := fmt.Sprintf("(?m)^\\| `%s` .*`%x` \\|$", regexp.QuoteMeta(e.Name()), sha256.Sum256([]byte(asset(t, "vendor/"+e.Name()))))
		if !regexp.MustCompile(line).MatchString(table) {
			t.Errorf("VENDORED.md has no line %s", line)
		}
	}
	for _, licence := range []string{"htmx.LICENSE", "uPlot.LICENSE"} {
		if len(asset(t, "vendor/"+licence)) < 500 {
			t.Errorf("%s is no licence", licence)
		}
	}
}

// Nothing that the dashboard wrote itself needs more than its policy allows, or the network.
func TestPolicy(t *testing.T) {
	if m := regexp.MustCompile(`https?:|@import|url\(`).FindString(asset(t, "app.css")); m != "" {
		t.Errorf("app.css has %q", m)
	}
	js := regexp.MustCompile(`(?m)//.*$`).ReplaceAllString(asset(t, "app.js"), "")
	if m := regexp.MustCompile(`https?:|\beval\b|new Function|document\.write|innerHTML|outerHTML|insertAdjacentHTML`).FindString(js); m != "" {
		t.Errorf("app.js has %q", m)
	}
}

// Texts have the contrast that WCAG AA asks for, in light and dark.
func TestContrast(t *testing.T) {
	css := asset(t, "app.css")
	dark := css[strings.Index(css, "prefers-color-scheme: dark"):]
	dark = dark[:strings.Index(dark, "\n}")]
	for name, block := range map[string]string{"light": css[:strings.Index(css, "@media")], "dark": dark} {
		colours := map[string]float64{}
		for _, m := range regexp.MustCompile(`--(\w+): #([0-9a-f]{6});`).FindAllStringSubmatch(block, -1) {
			colours[m[1]] = luminance(t, m[2])
		}
		if len(colours) != 6 {
			t.Fatalf("%s has %d colours", name, len(colours))
		}
		for _, text := range []string{"ink", "soft", "accent"} {
			for _, ground := range []string{"paper", "wash"} {
				a, b := colours[text], colours[ground]
				if ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05); ratio < 4.5 {
					t.Errorf("%s: %s on %s has a contrast of %.2f, want 4.5", name, text, ground, ratio)
				}
			}
		}
	}

	// No colour is set anywhere else.
	rest := css[strings.Index(css, "*, *::before"):]
	if m := regexp.MustCompile(`#[0-9a-f]{3,8}\b[^{]*;|rgb\((?:[^0]|0 [^0])`).FindString(rest); m != "" {
		t.Errorf("a colour of its own: %s", m)
	}
}

// luminance is that of WCAG 2.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}
