package dashboard

import (
	"crypto/rand"
	"embed"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"strings"
)

//go:embed templates assets
var files embed.FS

// renderer writes pages. It is safe for concurrent use.
type renderer struct {
	templates *template.Template
	assets    fs.FS
	// root is where the assets are served from. It changes with each start, and so whenever one of
	// them does.
	root string
}

// frame is what a template gets: the shell, and the view as V.
type frame struct {
	*shell
	V any
}

// newRenderer parses the templates.
func newRenderer() (*renderer, error) {
	assets, err := fs.Sub(files, "assets")
	if err != nil {
		return nil, err
	}

	r := &renderer{assets: assets, root: staticPath + rand.Text() + "/"}
	funcs := template.FuncMap{
		"asset": func(name string) string { return r.root + name },
		"sub":   func(f frame, view any) frame { return frame{f.shell, view} },
	}

	t := template.New("").Funcs(formats).Funcs(funcs)
	r.templates, err = t.ParseFS(files, "templates/*.html")
	return r, err
}

// page writes a whole page.
func (r *renderer) page(w io.Writer, name string, s *shell, view any) error {
	var main strings.Builder
	if err := r.templates.ExecuteTemplate(&main, "page-"+name, frame{s, view}); err != nil {
		return err
	}
	escaped := template.HTML(main.String()) // by the template just now
	return r.templates.ExecuteTemplate(w, "layout", frame{s, escaped})
}

// static serves the assets. Errors are not cached: net/http takes the header back.
func (r *renderer) static() http.Handler {
	serve := http.FileServerFS(r.assets)
	return http.StripPrefix(r.root, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		serve.ServeHTTP(w, q)
	}))
}
