package dashboard

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"fmt"
	"hash/maphash"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
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
		s = &shell{Title: s.Title, Nav: name, Now: s.Now}
	}
	main, err := r.execute("page-"+name, s, view)
	if err != nil {
		return err
	}
	return r.fragment(w, "layout", s, template.HTML(main)) // it was escaped just now
}

// fragment writes one template. After an error, a part of it may be written.
func (r *renderer) fragment(w io.Writer, name string, s *shell, view any) error {
	return r.templates.ExecuteTemplate(w, name, frame{s, view})
}

func (r *renderer) execute(name string, s *shell, view any) (string, error) {
	var b strings.Builder
	err := r.fragment(&b, name, s, view)
	return b.String(), err
}

// part is an element of a page that changes by itself.
type part struct {
	ID, HTML string
	// Row is an element within the one before it that is no row.
	Row bool
	// Key, if not "", says which rows there are: the element changes as a whole only if that does.
	Key string
}

// liveParts are the templates of the parts of each page, by their ids. All have a status besides.
var liveParts = map[string][][2]string{
	"queues":  {{"totals", "totals"}, {"queues", "queues"}},
	"queue":   {{"totals", "queue-totals"}, {"depth", "depth"}, {"head", "head"}, {"consumers", "consumers"}, {"schedules", "schedules"}, {"pause", "pause"}},
	"bridges": {{"bridges", "bridges"}},
}

// parts renders what changes by itself on a page. The table of the queues also has its rows.
func (r *renderer) parts(page string, s *shell, view any) (list []part, err error) {
	for _, p := range liveParts[page] {
		html, err := r.execute(p[1], s, view)
		if err != nil {
			return nil, err
		}
		list = append(list, part{ID: p[0], HTML: html})
	}

	v, ok := view.(*queuesView)
	if !ok {
		return list, nil
	}
	key := fmt.Sprint(v.Total, v.Matching, v.Pager, v.Denied)
	rows := make([]part, len(v.Rows))
	for i := range v.Rows {
		id := v.Rows[i].ElementID()
		html, err := r.execute("queue-row", s, &v.Rows[i])
		if err != nil {
			return nil, err
		}
		rows[i] = part{ID: id, HTML: html, Row: true}
		key += " " + id
	}
	list[len(list)-1].Key = key
	return append(list, rows...), nil
}

// sent is what a browser was sent last: hashes, by the ids of elements.
type sent map[string]uint64

// changes returns the HTML of the parts that are not as they were sent last, for an event "patch";
// "" if all are.
func (r *renderer) changes(last sent, parts []part) string {
	var html, rows strings.Builder
	whole := false // the element that the rows are within was written
	for _, p := range parts {
		hash := maphash.String(r.seed, cmp.Or(p.Key, p.HTML))
		before, known := last[p.ID]
		changed := !known || before != hash
		last[p.ID] = hash

		switch {
		case !p.Row:
			if whole = changed; changed {
				html.WriteString(p.HTML)
			}
		case changed && !whole:
			rows.WriteString(p.HTML)
		}
	}
	if rows.Len() > 0 { // outside of a table the browser would drop rows
		html.WriteString("<table>" + rows.String() + "</table>")
	}
	return html.String()
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
