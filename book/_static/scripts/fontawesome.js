/* Empty on purpose: the theme ships a 1.5 MB script that draws icons; here they come from a font, and no page asks for it. */
