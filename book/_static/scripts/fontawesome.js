/* Empty on purpose: the theme ships a 1.5 MB script that draws icons; here a font has them, and no page asks for it. */
