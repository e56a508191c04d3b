package dashboard

import (
	"bytes"
	"embed"
	"html/template"
	"io/fs"
	"net/http"
	"strings"
	"sync"
)

//go:embed templates assets
var files embed.FS

// templates are parsed by the first page: no other command of pq needs them.
var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(formats).ParseFS(files, "templates/*.html"))
})

// writePage writes a whole page.
func writePage(w *bytes.Buffer, name string, s *shell, view any) error {
	var main strings.Builder
	if err := templates().ExecuteTemplate(&main, "page-"+name, s.with(view)); err != nil {
		return err
	}
	const frameBytes = 16 << 10
	w.Grow(main.Len() + frameBytes)         // at once: it may be megabytes that were typed
	escaped := template.HTML(main.String()) // by the template just now
	return templates().ExecuteTemplate(w, "layout", s.with(escaped))
}

// serveAssets serves the assets. Errors are not cached: net/http takes the header back.
func serveAssets() http.Handler {
	assets, _ := fs.Sub(files, "assets") // fails only if that is no path
	serve := http.FileServerFS(assets)
	cached := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		serve.ServeHTTP(w, r)
	}
	return http.StripPrefix(assetRoot, http.HandlerFunc(cached))
}
