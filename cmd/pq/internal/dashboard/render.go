package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
)

//go:embed templates assets
var files embed.FS

// renderer writes pages and fragments. It is safe for concurrent use.
type renderer struct {
	templates *template.Template
	assets    fs.FS
	// root is where the assets are served from. It changes whenever one of them does.
	root string
	seed maphash.Seed

	mu   sync.Mutex
	rows map[string]madeRow
}

// madeRow is the HTML of a row of the queues, and what it was made of.
type madeRow struct{ from, html string }

// maxRows is how many of them are kept.
const maxRows = 2000

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

	sum := sha256.New()
	err = fs.WalkDir(assets, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(assets, name)
		sum.Write(data) // never returns an error
		return err
	})
	if err != nil {
		return nil, err
	}

	r := &renderer{assets: assets, root: fmt.Sprintf("/static/%.6x/", sum.Sum(nil)), seed: maphash.MakeSeed()}
	funcs := template.FuncMap{
		"asset": func(name string) string { return r.root + name },
		"sub":   func(f frame, view any) frame { return frame{f.shell, view} },
	}
	r.templates, err = template.New("").Funcs(formats).Funcs(funcs).ParseFS(files, "templates/*.html")
	return r, err
}

// page writes a whole page. That of the login says nothing about where it leads.
func (r *renderer) page(w io.Writer, name string, s *shell, view any) error {
	if name == "login" {
		s = &shell{Title: s.Title, Nav: name, Now: s.Now, CSRF: s.CSRF}
	}
	main, err := r.execute("page-"+name, s, view)
	if err != nil {
		return err
	}
	return r.fragment(w, "layout", s, template.HTML(main)) // it was escaped just now
}

// fragment writes one template, or nothing if that fails.
func (r *renderer) fragment(w io.Writer, name string, s *shell, view any) error {
	html, err := r.execute(name, s, view)
	if err == nil {
		_, err = io.WriteString(w, html)
	}
	return err
}

func (r *renderer) execute(name string, s *shell, view any) (string, error) {
	var b bytes.Buffer
	err := r.templates.ExecuteTemplate(&b, name, frame{s, view})
	return b.String(), err
}

// sent is what a browser was sent last: hashes, by the ids of elements.
type sent map[string]uint64

// live returns the HTML of the elements of a page that are not as they were sent last, for an event
// "patch"; "" if all are.
func (r *renderer) live(last sent, name string, s *shell, view any) (string, error) {
	parts := [][2]string{{"status", "status"}} // elements and their templates
	switch v := view.(type) {
	case *queuesView:
		parts = append(parts, [2]string{"totals", "totals"})
	case *queueView:
		parts = append(parts, [][2]string{{"totals", "queue-totals"}, {"depth", "depth"}, {"head", "head"}}...)
		if v.Can.Config { // which an event may not know
			parts = append(parts, [2]string{"pause", "pause"})
		}
	case *bridgesView:
		parts = append(parts, [2]string{"bridges", "bridges"})
	}

	var changed strings.Builder
	for _, part := range parts {
		html, err := r.execute(part[1], s, view)
		if err != nil {
			return "", err
		}
		if r.differs(last, part[0], html) {
			changed.WriteString(html)
		}
	}
	if v, ok := view.(*queuesView); ok {
		if err := r.liveRows(&changed, last, s, v); err != nil {
			return "", err
		}
	}
	return changed.String(), nil
}

// liveRows writes the rows that changed, or all of the table if it has others than before, or in
// another order.
func (r *renderer) liveRows(changed *strings.Builder, last sent, s *shell, v *queuesView) error {
	var some, order strings.Builder
	fmt.Fprint(&order, v.Total, v.Matching, v.Pager, v.Denied)
	for i := range v.Rows {
		id := v.Rows[i].ElementID()
		html, err := r.row(id, s, &v.Rows[i])
		if err != nil {
			return err
		}
		order.WriteString(" " + id)
		if r.differs(last, id, html) {
			some.WriteString(html)
		}
	}
	if !r.differs(last, "queues", order.String()) {
		if some.Len() > 0 { // outside of a table the browser would drop rows
			changed.WriteString("<table>" + some.String() + "</table>")
		}
		return nil
	}
	return r.fragment(changed, "queues", s, v)
}

// row returns the HTML of a row. It is made once for all tabs that show the row as it is.
func (r *renderer) row(id string, s *shell, row *queueRow) (string, error) {
	from, err := json.Marshal(row)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	made := r.rows[id]
	r.mu.Unlock()
	if made.from == string(from) {
		return made.html, nil
	}

	html, err := r.execute("queue-row", s, row)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.rows) >= maxRows || r.rows == nil {
		r.rows = map[string]madeRow{}
	}
	r.rows[id] = madeRow{string(from), html}
	return html, err
}

// differs notes what is sent now of an element, and reports whether it is not what was sent last.
func (r *renderer) differs(last sent, id, html string) bool {
	before, known := last[id]
	last[id] = maphash.String(r.seed, html)
	return !known || before != last[id]
}

// static serves the assets.
func (r *renderer) static() http.Handler {
	serve := http.StripPrefix(r.root, http.FileServerFS(r.assets))
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if path.Ext(q.URL.Path) == "" || !strings.HasPrefix(q.URL.Path, r.root) { // a directory, or an old version
			http.NotFound(w, q)
			return
		}
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		serve.ServeHTTP(w, q)
	})
}
